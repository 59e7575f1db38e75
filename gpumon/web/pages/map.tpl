% for model, rows in view.map:
<h3>{{model}} <span class="note">{{counted(len(rows), 'host')}}</span></h3>
<div class="map">
% for row in rows:
{{!map_link(row.host, root)}}
% end
</div>
% end
