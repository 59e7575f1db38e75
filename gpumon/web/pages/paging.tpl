% if view.pages > 1:
<nav class="paging" aria-label="Pages of the list of hosts">
% for number in range(1, view.pages + 1):
% if number == view.page:
<b aria-current="page">{{number}}</b>
% else:
<a href="{{root}}{{address.but(page=str(number) if number > 1 else '')}}#hosts">{{number}}</a>
% end
% end
</nav>
% end
