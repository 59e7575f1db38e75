% column = view.columns[name]
<th scope="col"{{!' class="%s"' % kind if kind else ''}}{{!' aria-sort="%s"' % column.aria if column.aria else ''}}><a href="{{root}}{{address.but(sort=column.next)}}#hosts">{{label}}</a></th>\\
