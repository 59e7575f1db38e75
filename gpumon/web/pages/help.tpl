% rebase('base.tpl')
<section>
<h1>Help</h1>
<p>This page tells which GPU is free, who holds what and since when, and what is wasted or broken. It never guesses: what is not known is shown as “-” or “?”, and is never zero, idle or free.</p>
</section>
<section id="legend">
<h2>GPUs</h2>
<div class="scroll" role="region" aria-label="Signs of the states" tabindex="0">
<table class="short">
<thead><tr><th scope="col">Sign</th><th scope="col">State</th><th scope="col">Drawn</th><th scope="col">Means</th></tr></thead>
<tbody>
% for one in page.states:
<tr><td><i class="c {{one.state}}{{' u7' if one.state == 'busy' else ''}}" aria-hidden="true">{{one.sign}}</i></td><th scope="row" class="w {{one.state}}">{{one.state}}</th><td>{{one.drawn}}</td><td>{{one.means}}</td></tr>
% end
</tbody>
</table>
</div>
<p>“At least 2h” was so when somebody looked first, so it may be longer. “At most 2h” is the age of a process that was there then: nobody saw when it took the GPU. Where there is little room they are ≥ and ≤, in the text &gt;= and &lt;=.</p>
<p>In the map a square stands for a GPU: the same borders and signs, busy ones filled from below by their utilization. A GPU in MIG mode is drawn as its instances in the rows, and as one square in the map.</p>
</section>
% for name, heading, first, rows in (('states', 'Hosts', 'State', page.hosts), ('list', 'Wasted or broken', 'State', page.waste), ('words', 'Filter', 'Words', page.words), ('forms', 'Addresses', 'Ending', page.forms)):
<section id="{{name}}">
<h2>{{heading}}</h2>
% if name == 'words':
<p>Words are joined by “and”, and those about GPUs must fit one and the same GPU. The same words do the same in status.json?q= and status.txt?q=.</p>
% end
<table class="short">
<thead><tr><th scope="col">{{first}}</th><th scope="col">Means</th></tr></thead>
<tbody>
% for word, means in rows:
<tr><th scope="row" class="nw">{{word}}</th><td>{{means}}</td></tr>
% end
</tbody>
</table>
% if name == 'forms':
<p>For programs: <a href="{{root}}openapi.json">openapi.json</a>, <a href="{{root}}schema.json">schema.json</a></p>
% end
</section>
% end
<section id="keys">
<h2>Keys</h2>
<p><kbd>/</kbd> goes to the filter, <kbd>f</kbd> shows what is free, <kbd>?</kbd> this help. They are off until you switch them on. <button type="button" id="shortcuts" hidden>Switch on</button><span class="no-script">They need scripts.</span></p>
</section>
