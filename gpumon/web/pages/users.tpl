% if not chosen.users:
<p>{{NO_USERS}}</p>
% else:
% rest = chosen.users[MOST_USERS:]
% whole = address.all == 'users' or len(rest) <= MOST_FOLDED
% shown = [chosen.users[:MOST_USERS], rest if whole else []]
% for place, users in enumerate(shown):
% if users:
% if place:
<details{{!' open' if address.all == 'users' else ''}}><summary>{{len(users)}} more</summary>
% end
<table class="users">
<thead><tr><th scope="col" class="h">User</th><th scope="col" class="n i">GPUs</th><th scope="col" class="n i">Idle</th><th scope="col" class="n">Memory</th><th scope="col" class="n i p">Procs</th><th scope="col" class="n">Since</th></tr></thead>
% for user in users:
<tbody data-key="{{user.user or '?'}}"><tr><th scope="row">\\
% include('user_link.tpl', user=user.user, starred=user.user in view.by_rule)
</th><td class="n">{{user.gpus}}</td><td class="n">{{user.idle_gpus}}</td><td class="n">{{mib(user.gpu_memory_used_mib)}}</td><td class="n p">{{'-' if user.processes is None else user.processes}}</td><td class="n">{{short_since(user.since, at_most=user.since_at_most)}}</td></tr>\\
% if view.details:

<tr class="where"><td colspan="6">\\
% for held in user.places[:PLACES]:
<span class="u"><a href="{{root}}host/{{segment(held.host)}}">{{held.host}}</a>: {{numbers(held.gpus)}}</span> \\
% end
% if len(user.places) > PLACES:
<span class="u">and {{len(user.places) - PLACES}} more</span>\\
% end
</td></tr>\\
% end
</tbody>
% end
</table>
% if place:
</details>
% end
% end
% end
% if not whole:
<p><a href="{{root}}{{address.but(all='users')}}#users">All {{len(rest) + MOST_USERS}} users</a></p>
% end
% end
