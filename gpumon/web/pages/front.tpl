% rebase('base.tpl', layout='two')
<h1 class="sr">{{brand}}</h1>
% if not status.hosts:
<section>
<h2>No hosts yet</h2>
<p>{{NO_HOSTS}}</p>
<pre>\\
% for line in EXAMPLE_HOSTS:
{{line}}
% end
</pre>
</section>
% else:
% if address.query.words or remarks:
<section id="filtered">
% if address.query.words:
% some = view.fitting != len(status.hosts)
<p>{{'%d of %d hosts fit' % (view.fitting, len(status.hosts)) if some else 'All hosts fit'}} the filter <b>{{address.query.text}}</b>{{'; all below is about these, the counts above are not.' if some and view.fitting else '.'}} <a href="{{root}}{{address.but(q='')}}">Show all hosts</a></p>
% end
% for remark in remarks:
<p class="remark">{{remark}}</p>
% end
</section>
% end
% if not view.fitting:
<section><h2>Hosts</h2><p>{{NO_MATCH}} <a href="{{root}}help#words">What a filter may say</a></p></section>
% else:
% if view.summary:
<section id="worst">
<p><a href="#waste">Wasted or broken</a>: <span class="said">\\
% for place, part in enumerate(view.summary):
{{', ' if place else ''}}<span class="w {{part.kind}}">{{part.kind}}</span> {{part.what}}\\
% end
</span></p>
</section>
% end
<section id="free">
<h2>Free now</h2>
% if not view.models:
<p>{{view.no_models}}</p>
% else:
% if view.nothing_free:
<p class="big said">{{view.nothing_free}}</p>
% if view.ask:
<p>Held but unused the longest: \\
% for row in view.ask:
<span class="u"><a href="{{root}}host/{{segment(row.host)}}">{{row.host}}</a> GPU {{numbers(row.gpus)}} \\
% for user in row.users:
% include('user_link.tpl', user=user, starred=user in row.by_rule)
 \\
% end
{{since(row.since, row.at_least)}}</span> \\
% end
</p>
% end
% end
<table class="short free">
<thead><tr><th scope="col">Model</th><th scope="col" class="n">Free</th><th scope="col" class="n">Total</th><th scope="col">Most free on one host</th></tr></thead>
<tbody>
% for model in view.models:
<tr data-key="{{model.model}}"><th scope="row">{{model.model}}</th><td class="n">\\
% if model.counts.free:
<b class="w free big">{{model.counts.free}}</b>\\
% else:
<span class="muted">0</span>\\
% end
</td><td class="n">{{model.counts.total}}</td><td>\\
% for block in model.blocks[:BLOCKS]:
<span class="u"><a href="{{root}}host/{{segment(block.host)}}">{{block.host}}</a> (<span class="n">{{block.free}}</span>)</span> \\
% end
% if len(model.blocks) > BLOCKS:
<span class="note">and {{len(model.blocks) - BLOCKS}} more</span> \\
% end
% if model.counts.unknown:
<span class="note">({{model.counts.unknown}} unknown)</span>\\
% end
</td></tr>
% end
</tbody>
</table>
% if view.mig:
<p class="note">{{MIG_COUNTS}}</p>
% end
% end
</section>
<section id="hosts">
<div class="line"><h2>Hosts</h2>
% if view.fitting > 1:
<p>\\
% if view.map:
<a href="{{root}}{{address.but(view='rows')}}">As rows</a>\\
% else:
<a href="{{root}}{{address.but(view='map')}}">As a map</a>\\
% end
<a class="narrow" href="#users">Users</a></p>
% end
<p class="note">{{readings(status)}}</p></div>
% if view.map:
% include('map.tpl')
% else:
% include('hosts.tpl', rows=view.hosts)
% include('paging.tpl')
% end
</section>
<section id="users">
<h2>Users by GPUs held</h2>
% include('users.tpl')
</section>
<section id="waste">
<h2>Wasted or broken</h2>
% include('waste.tpl')
</section>
<section id="week">
<h2>Last week</h2>
<p class="note">{{NO_HISTORY}}</p>
</section>
% end
% end
