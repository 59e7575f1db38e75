% rebase('base.tpl')
<section>
<p><a href="{{root}}">All hosts</a></p>
<h1>{{host.name}}</h1>
<p><span class="said w {{host.state}}">{{host.state}}</span>\\
% if host.age_seconds is None:
, no reading yet\\
% else:
, reading {{duration(host.age_seconds)}} old\\
% end
% if host.gpus:
. <span class="said">{{sentence(host.gpus)}}</span>\\
% end
</p>
% for problem in page.problems:
<p class="{{'remark' if page.harmless else 'problem'}}">{{problem}}</p>
% end
% for note in host.notes:
<p class="remark">{{note}}</p>
% end
% if host.state != 'fresh' and host.gpus:
<p>All values below are the last ones known, from {{clock(page.read_at, status.time)}}.</p>
% end
<dl class="facts">
% for label, text in page.facts:
<div><dt>{{label}}</dt><dd>{{text}}</dd></div>
% end
</dl>
</section>
<section id="gpus">
<div class="line"><h2>GPUs</h2>
<p>Bars: \\
% if colors == 'use':
<a href="{{root}}{{here}}{{address.but(colors='states')}}">in one colour</a></p>
% else:
<a href="{{root}}{{here}}{{address.but(colors='use')}}">green, yellow and red by use</a></p>
% end
</div>
% if not host.gpus:
<p>{{'Not known: see above.' if row.instead in page.problems else row.instead}}</p>
% else:
<table class="gpus wide flow">
<thead><tr><th scope="col">GPU</th><th scope="col">Model</th><th scope="col">State, since</th><th scope="col">Utilization</th><th scope="col">Memory</th><th scope="col" class="n">Power</th><th scope="col" class="n">Temp.</th><th scope="col">Clocks lowered by</th><th scope="col">Held by: user, program, memory, since</th></tr></thead>
<tbody>
% for gpu in host.gpus:
% for part in [gpu, *gpu.mig]:
% whole = part is gpu
% one = cell(part)
<tr{{!'' if whole else ' class="sub"'}} data-gpu="{{gpu.index}}" data-state="{{part.state}}" data-key="{{gpu.index if whole else '%d-%d' % (gpu.index, part.index)}}"><th scope="row" class="nw">{{gpu.index if whole else 'MIG %d' % part.index}}</th><td>{{gpu.model if whole else part.name or '-'}}</td><td><span class="nw"><i class="c {{one.state}}{{" u%d" % one.level if one.level else ""}}" aria-hidden="true">{{one.mark}}</i> <span class="w {{part.state}}">{{part.state}}</span> {{since(part.since, part.since_at_least, part.since_at_most)}}</span></td><td class="nw" data-l="used">{{!bar(part, 'use', colors)}}{{percent(gpu.utilization_percent) if whole else '-'}}</td><td class="nw">{{!bar(part, 'memory', colors)}}{{memory(part)}}</td><td class="n">{{watts(gpu.power_draw_watts, gpu.enforced_power_limit_watts) if whole else ''}}</td><td class="n">{{temperature(gpu.temperature_celsius) if whole else ''}}</td><td data-l="clocks">{{page.clocks.get(gpu.index, '-') if whole else ''}}</td><td>\\
% include('held_by.tpl', part=part, programs=True)
% extra = page.unattributed.get((gpu.index, gpu.uuid)) if whole else None
% if extra:
 <span class="note nw">unattributed {{extra}}</span>\\
% end
</td></tr>
% end
% end
</tbody>
</table>
% end
</section>
% if page.troubles or page.hints:
<section id="health">
<h2>Health</h2>
% if page.troubles:
<div class="scroll" role="region" aria-label="Health" tabindex="0">
<table class="health">
<thead><tr><th scope="col">GPU</th><th scope="col">Level</th><th scope="col">What</th><th scope="col" class="n">Times</th><th scope="col">First</th><th scope="col">Last</th><th scope="col">Now</th><th scope="col">What to do</th><th scope="col">Source</th></tr></thead>
<tbody>
% for trouble in page.troubles:
<tr><td>{{trouble.gpu}}</td><th scope="row" class="w {{trouble.level}}">{{trouble.level}}</th><td>{{trouble.text}}</td><td class="n">{{trouble.times}}</td><td class="nw">{{trouble.first}}</td><td class="nw">{{trouble.last}}</td><td class="nw">{{trouble.over}}</td><td>{{trouble.advice}}</td><td>{{trouble.source}}</td></tr>
% end
</tbody>
</table>
</div>
% end
% if page.hints:
<h3>Hints</h3>
<ul class="reasons">
% for hint in page.hints:
<li>GPU {{numbers(hint.gpus)}}: {{hint.text}}</li>
% end
</ul>
% end
</section>
% end
<section id="processes">
<h2>Processes</h2>
% if detail is None:
<p>The processes of this host are not known: there is no reading of it.</p>
% else:
% for gpu, why in page.hidden:
<p class="problem">The processes of GPU {{gpu}} are not known: {{why}}.</p>
% end
% if not detail.gpus and detail.gpu_count is None:
<p>The processes of this host are not known: its GPUs could not be read.</p>
% elif not page.processes:
<p>{{'No process was seen on the other GPUs.' if page.hidden else 'No process on any GPU.'}}</p>
% else:
<div class="scroll" role="region" aria-label="Processes" tabindex="0">
<table class="processes">
<thead><tr><th scope="col">GPU</th><th scope="col">User</th><th scope="col" class="n">Memory</th><th scope="col" class="n">Time</th><th scope="col" class="n">PID</th><th scope="col">{{'Command' if commands else 'Program'}}</th><th scope="col">Kind</th><th scope="col" class="n">Utilization</th><th scope="col" class="n">CPU</th><th scope="col" class="n">RAM</th><th scope="col">State</th><th scope="col">Job, container, remark</th></tr></thead>
<tbody>
% for line in page.processes:
% process = line.process
<tr data-key="{{line.gpu}}-{{process.pid}}" data-pid="{{process.pid}}"><td class="nw">{{line.gpu}}</td><th scope="row">\\
% include('user_link.tpl', user=process.user, starred=process.user_by is not None)
</th><td class="n">{{mib(process.gpu_memory_used_mib)}}</td><td class="n">{{duration(process.runtime_seconds)}}</td><td class="n">{{process.pid}}</td><td>{{(process.command if commands else None) or process.program or '-'}}</td><td>{{', '.join(process.kinds) or '-'}}</td><td class="n">{{percent(process.sm_utilization_percent)}}</td><td class="n">{{percent(process.cpu_percent)}}</td><td class="n">{{mib(process.memory_used_mib)}}</td><td>{{process.state or '-'}}</td><td>{{line.remark}}</td></tr>
% end
</tbody>
</table>
</div>
% end
% end
</section>
% if page.gpu_indices:
<section id="readings">
<details id="all-readings"><summary><h2>All readings</h2></summary>
<div class="scroll" role="region" aria-label="All readings" tabindex="0">
<table class="readings">
<thead><tr><th scope="col">Reading</th>
% for index in page.gpu_indices:
<th scope="col">GPU {{index}}</th>
% end
</tr></thead>
<tbody>
% for reading in page.readings:
<tr><th scope="row">{{reading.label}}</th>\\
% for value in reading.values:
<td>{{value}}</td>\\
% end
</tr>
% end
</tbody>
</table>
</div>
% if page.reasons:
<h3>Why some are unknown</h3>
<ul class="reasons">
% for reason in page.reasons:
<li>{{reason.label}}, GPU {{numbers(reason.gpus)}}: {{reason.why}}</li>
% end
</ul>
% end
</details>
</section>
% end
