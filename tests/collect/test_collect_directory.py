"""Accounts that only a directory knows, through the C library's own way to one (NSS)."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys

import pytest
from collect_helpers import needs_root, needs_unshare

pytestmark = [
    needs_root,
    needs_unshare,
    pytest.mark.system,
    pytest.mark.skipif(shutil.which("cc") is None, reason="needs a C compiler"),
]

UID = 424242

MODULE = """
#include <errno.h>
#include <nss.h>
#include <pwd.h>
#include <stdlib.h>
#include <string.h>

enum nss_status _nss_gpumontest_getpwuid_r(uid_t uid, struct passwd *entry, char *room,
                                           size_t size, int *error)
{
    const char *down = getenv("DIRECTORY");
    if (down != NULL && strcmp(down, "unavailable") == 0) {
        *error = ECONNREFUSED;
        return NSS_STATUS_UNAVAIL;
    }
    if (uid != 424242 || (down != NULL && strcmp(down, "forgets") == 0) || size < 8) {
        *error = ENOENT;
        return NSS_STATUS_NOTFOUND;
    }
    memcpy(room, "dora", 5);
    *entry = (struct passwd){.pw_name = room, .pw_passwd = room, .pw_uid = uid, .pw_gid = uid,
                             .pw_gecos = room, .pw_dir = room, .pw_shell = room};
    return NSS_STATUS_SUCCESS;
}
"""

ASK = f"""
import json
from gpumon.collect.accounts import Accounts
accounts = Accounts(patience=5.0)
accounts.begin(0.0)
print(json.dumps([*accounts.name({UID}), accounts.are_local()]))
"""


@pytest.fixture(scope="module")
def ask(tmp_path_factory):
    """Ask on a host whose accounts are in files and in a directory; `directory` is how that is."""
    folder = tmp_path_factory.mktemp("nss")
    (folder / "module.c").write_text(MODULE)
    library = folder / "libnss_gpumontest.so.2"
    build = ["cc", "-shared", "-fPIC", "-o", str(library), str(folder / "module.c")]
    done = subprocess.run(build, capture_output=True, check=False)
    if done.returncode != 0:
        pytest.skip(f"needs the C library's headers: {done.stderr.decode()[:200]}")
    (folder / "nsswitch.conf").write_text("passwd: files gpumontest\n")
    mount = f'mount --bind {folder}/nsswitch.conf /etc/nsswitch.conf && exec "$@"'

    def asked(directory):
        done = subprocess.run(
            ["unshare", "--mount", "sh", "-c", mount, "sh", sys.executable, "-c", ASK],
            env={**os.environ, "LD_LIBRARY_PATH": str(folder), "DIRECTORY": directory},
            capture_output=True,
            timeout=30,
            check=False,
        )
        assert done.returncode == 0, done.stderr.decode()
        return json.loads(done.stdout)

    return asked


def test_a_user_whom_only_the_directory_knows_has_a_name(ask):
    assert ask("well") == ["dora", None, False]


@pytest.mark.parametrize("directory", ["unavailable", "forgets"])
def test_a_directory_that_is_down_leaves_the_number_and_is_not_sure_that_there_is_no_name(
    ask, directory
):
    assert ask(directory) == [f"uid:{UID}", None, False]
