<table class="gpus">
% if host.state != 'fresh':
<caption>Last known values, {{duration(host.age_seconds)}} old</caption>
% end
<thead><tr><th scope="col">GPU</th><th scope="col">State</th><th scope="col">Utilization</th><th scope="col">Memory</th><th scope="col" class="n">Temp.</th><th scope="col">Held by</th></tr></thead>
<tbody>
% for gpu in host.gpus:
% for part in [gpu, *gpu.mig]:
% whole = part is gpu
<tr{{!'' if whole else ' class="sub"'}} data-key="{{gpu.index if whole else '%d-%d' % (gpu.index, part.index)}}"><th scope="row" class="nw">{{gpu.index if whole else 'MIG %d' % part.index}}</th><td class="nw"><span class="w {{part.state}}">{{part.state}}</span> {{since(part.since, part.since_at_least, part.since_at_most)}}</td><td class="nw">{{!bar(part, 'use', colors)}}{{percent(gpu.utilization_percent) if whole else '-'}}</td><td class="nw">{{!bar(part, 'memory', colors)}}{{memory(part)}}</td><td class="n">{{temperature(gpu.temperature_celsius) if whole else ''}}</td><td>\\
% include('held_by.tpl', part=part, programs=False)
</td></tr>
% end
% end
</tbody>
</table>
