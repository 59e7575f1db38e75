% if not view.waste:
<p>{{NO_WASTE}}</p>
% else:
% rest = view.waste[MOST_WASTE:]
% whole = address.all == 'waste' or len(rest) <= MOST_FOLDED
% shown = [view.waste[:MOST_WASTE], rest if whole else []]
% for place, rows in enumerate(shown):
% if rows:
% if place:
<details{{!' open' if address.all == 'waste' else ''}}><summary>{{len(rows)}} more</summary>
% end
<table class="waste flow">
<thead><tr><th scope="col" class="k">State</th><th scope="col" class="h">Where</th><th scope="col" class="who">Who</th><th scope="col">What</th><th scope="col" class="n s">Since</th><th scope="col" class="do">What to do</th></tr></thead>
<tbody>
% for row in rows:
<tr data-key="{{row.kind}} {{row.host}} {{numbers(row.gpus)}}"><th scope="row" class="w {{row.kind}}">{{row.kind}}</th><td>\\
% if row.host:
<a href="{{root}}host/{{segment(row.host)}}">{{row.host}}</a>\\
% else:
this server\\
% end
% if row.more_hosts:
 and {{row.more_hosts}} more\\
% end
% if row.gpus:
 GPU {{numbers(row.gpus)}}\\
% end
</td><td>\\
% for user in row.users:
<span class="u">\\
% include('user_link.tpl', user=user, starred=user in row.by_rule)
</span> \\
% end
</td><td class="what">{{row.what}}</td><td class="n" data-l="since">{{since(row.since, row.at_least)}}</td><td class="do"{{!' data-l="to do:"' if row.advice else ''}}>{{row.advice}}</td></tr>
% end
</tbody>
</table>
% if place:
</details>
% end
% end
% end
% if not whole:
<p><a href="{{root}}{{address.but(all='waste')}}#waste">All {{len(rest) + MOST_WASTE}} rows</a></p>
% end
% end
