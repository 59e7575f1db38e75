<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta http-equiv="refresh" content="{{reload}}">
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; style-src 'unsafe-inline'">
<title>{{title}}</title>
<style>
:root { color-scheme: light dark; font: 16px/1.4 system-ui, sans-serif; }
body { max-width: 60rem; margin: 0 auto; padding: 1rem; }
h2 { font-size: 1.1rem; margin: 1.5rem 0 .3rem; overflow-wrap: anywhere; }
table { width: 100%; border-collapse: collapse; }
th, td { text-align: left; padding: .25rem .5rem; overflow-wrap: anywhere; }
td { border-top: 1px solid #8886; }
.taken { background: #b3261e; color: #fff; }
.free { background: #1b6e2e; color: #fff; }
</style>
</head>
<body>
<h1>{{title}}</h1>
% if simulated:
<p><strong>SIMULATED: these hosts and numbers are invented</strong></p>
% end
<p>Red: in use. Green: not in use. Without colour: not known, broken or drained.</p>
% for card in cards:
<section>
<h2>{{card.host}}</h2>
% if card.reason is not None:
<p>{{card.reason}}</p>
% elif not card.rows:
<p>It has no GPU, or tells of none.</p>
% else:
<table>
<thead><tr><th>#ID</th><th>GPU</th><th>Compute load</th><th>Memory load</th><th>Memory</th><th>Users</th></tr></thead>
<tbody>
% for row in card.rows:
% colour = {True: 'taken', False: 'free', None: 'unknown'}[row.taken]
<tr class="{{colour}}" title="{{row.word}}{{': ' + row.users if row.users else ''}}, Memory: {{row.memory_load}}"><td>{{row.number}}</td><td>{{row.name}}</td><td>{{row.load}}</td><td>{{row.memory_load}}</td><td>{{row.memory}}</td><td>{{row.users or row.word}}</td></tr>
% end
</tbody>
</table>
% end
</section>
% end
<p>As of {{written}}.</p>
</body>
</html>
