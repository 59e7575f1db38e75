"""A program with a fault: its kernel writes to memory that is not its own (XID 31, or 13).

Only the program is ended by it; the GPU works on and needs no reset. By the driver's own API
(libcuda.so.1). Exit code 0 when the driver refused the write, 1 when nothing was refused.
"""

from __future__ import annotations

import ctypes
import sys

KERNEL = b"""
.version 6.0
.target sm_50
.address_size 64
.visible .entry write()
{
    .reg .b32 %r<2>;
    .reg .b64 %rd<2>;
    mov.u64 %rd1, 0xdead0000;
    mov.u32 %r1, 1;
    st.global.u32 [%rd1], %r1;
    ret;
}
"""


def main() -> int:
    cuda = ctypes.CDLL("libcuda.so.1")

    def call(name: str, *arguments: object) -> None:
        code = getattr(cuda, name)(*arguments)
        if code != 0:
            raise OSError(f"{name} failed with CUDA error {code}")

    device, context = ctypes.c_int(), ctypes.c_void_p()
    module, kernel = ctypes.c_void_p(), ctypes.c_void_p()
    call("cuInit", 0)
    call("cuDeviceGet", ctypes.byref(device), 0)
    call("cuDevicePrimaryCtxRetain", ctypes.byref(context), device)
    call("cuCtxSetCurrent", context)
    call("cuModuleLoadData", ctypes.byref(module), KERNEL)
    call("cuModuleGetFunction", ctypes.byref(kernel), module, b"write")
    call("cuLaunchKernel", kernel, 1, 1, 1, 1, 1, 1, 0, None, None, None)
    try:
        call("cuCtxSynchronize")
    except OSError as error:
        print(error, flush=True)
        return 0
    return 1


if __name__ == "__main__":
    sys.exit(main())
