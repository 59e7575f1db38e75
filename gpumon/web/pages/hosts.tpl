<table class="hosts{{' long' if any(len(row.host.name) > 13 for row in rows) else ''}}">
<thead><tr><th scope="col" class="h">Host</th><th scope="col" class="m">Model</th><th scope="col" class="g">GPUs</th><th scope="col" class="n f">Free</th><th scope="col">Users: GPUs, since</th><th scope="col" class="n cpu">CPU</th><th scope="col" class="n cpu">RAM</th><th scope="col" class="n s">Seen</th></tr></thead>
<tbody>
% for row in rows:
% host = row.host
<tr class="{{host.state}}"><th scope="row"><a href="{{root}}host/{{segment(host.name)}}">{{host.name}}</a></th>\\
% if row.instead is not None:
<td colspan="4" class="note instead">{{row.instead}}</td>\\
% else:
<td class="model">{{row.model}}</td><td class="cells">\\
% if details:
<details class="l{{row.lines}}"{{!' open' if details == 'open' else ''}}><summary>\\
% end
<span class="strip" aria-hidden="true">\\
% include('strip.tpl', gpus=host.gpus)
</span><span class="sr">{{sentence(host.gpus)}}</span>\\
% if details:
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
 {{len(held.gpus)}} <span class="note">{{since(held.since)}}</span></span> \\
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
