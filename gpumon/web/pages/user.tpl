% rebase('base.tpl')
<section>
<p><a href="{{root}}">All hosts</a></p>
<h1>{{answer.user}}{{'*' if starred else ''}}</h1>
<p class="said">{{summary}}</p>
% if answer.gpus:
<table class="flow">
<thead><tr><th scope="col">Host</th><th scope="col">GPU</th><th scope="col">Model</th><th scope="col">State, since</th><th scope="col" class="n">Held since</th><th scope="col" class="n">Utilization</th><th scope="col" class="n">Memory</th><th scope="col">Program</th><th scope="col">PIDs</th></tr></thead>
<tbody>
% for held in answer.gpus:
<tr data-key="{{held.host}} {{held.gpu}} {{held.mig}}"><th scope="row"><a href="{{root}}host/{{segment(held.host)}}">{{held.host}}</a>\\
% if held.host_state != 'fresh':
 <span class="w {{held.host_state}}">{{held.host_state}}</span>\\
% end
</th><td class="nw" data-l="GPU">{{held.gpu}}{{'' if held.mig is None else ' MIG %d' % held.mig}}</td><td>{{held.model}}</td><td><span class="w {{held.state}}">{{held.state}}</span> {{since(held.since, held.since_at_least, held.since_at_most)}}</td><td class="n" data-l="held">{{since(held.held_since, at_most=held.held_since_at_most)}}</td><td class="n">{{percent(held.utilization_percent)}}</td><td class="n">{{mib(held.gpu_memory_used_mib)}} of {{mib(held.memory_total_mib)}}</td><td>{{held.program or '-'}}{{', owner by ' + held.user_by if held.user_by else ''}}</td><td data-l="PIDs">{{', '.join(map(str, held.pids))}}</td></tr>
% end
</tbody>
</table>
% end
</section>
