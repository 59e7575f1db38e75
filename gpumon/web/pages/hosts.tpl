<table class="hosts{{' long' if any(len(row.host.name) > 13 for row in rows) else ''}}{{' open' if view.details else ''}}">
<thead><tr>\\
% include('sort.tpl', label='Host', name='host', kind='h')
\\
% include('sort.tpl', label='Model', name='model', kind='m')
<th scope="col" class="g">GPUs</th>\\
% include('sort.tpl', label='Free', name='free', kind='n f')
\\
% include('sort.tpl', label='Users: GPUs, since', name='users', kind='')
\\
% include('sort.tpl', label='CPU', name='cpu', kind='n cpu')
\\
% include('sort.tpl', label='RAM', name='ram', kind='n cpu')
\\
% include('sort.tpl', label='Seen', name='seen', kind='n s')
</tr></thead>
<tbody>
% for row in rows:
% host = row.host
<tr class="{{host.state}}" data-host="{{host.name}}" data-state="{{host.state}}"><th scope="row"><a href="{{root}}host/{{segment(host.name)}}">{{host.name}}</a></th>\\
% if row.instead is not None:
<td colspan="4" class="note instead">{{row.instead}}</td>\\
% else:
<td class="model">{{row.model}}</td><td class="cells">\\
% if view.details:
<details class="l{{row.lines}}"{{!' open' if view.details == 'open' else ''}}><summary>\\
% end
<span class="strip" aria-hidden="true">\\
% include('strip.tpl', gpus=host.gpus)
</span><span class="sr">{{sentence(host.gpus)}}</span>\\
% if view.details:
</summary><div class="more">
% include('gpu_list.tpl', host=host)
</div></details>\\
% end
</td><td class="n f">{{row.free}}<span class="word"> free</span>\\
% if row.free_instances:
<br><span class="note">{{row.free_instances}} MIG</span>\\
% end
</td><td class="who">\\
% if row.held and host.state != 'fresh':
<span class="note">last: </span>\\
% end
% for held in row.held[:USERS_A_HOST]:
<span class="u">\\
% include('user_link.tpl', user=held.user, starred=held.by_rule)
 {{len(held.gpus)}} <span class="note">{{held_on_since(host, held.since, held.at_most)}}</span></span> \\
% end
% if len(row.held) > USERS_A_HOST:
<span class="note">+{{len(row.held) - USERS_A_HOST}}</span>\\
% end
% if row.remark:
<span class="note one">{{row.remark}}</span>\\
% end
</td>\\
% end
<td class="n cpu">{{row.cpu}}</td><td class="n cpu">{{row.memory}}</td><td class="n seen">{{row.seen}}\\
% if row.mark:
<br><span class="w {{row.mark}}">{{row.mark}}</span>\\
% end
</td></tr>
% end
</tbody>
</table>
