% rebase('base.tpl')
<section>
<h1>{{heading}}</h1>
% if near:
<p>Did you mean \\
% for place, name in enumerate(near):
{{', ' if place else ''}}<a href="{{root}}host/{{segment(name)}}">{{name}}</a>\\
% end
?</p>
% end
<p><a href="{{root}}">All hosts</a> <a href="{{root}}help">Help</a></p>
</section>
