<!doctype html>
<html lang="en" data-gpumon="{{version}}" data-refresh="{{refresh_seconds}}">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width,initial-scale=1">
<title>{{title}}</title>
<link rel="stylesheet" href="{{root}}{{css}}">
% if personal:
<link rel="stylesheet" href="{{root}}me.css">
% end
<link rel="icon" href="{{root}}{{icon}}">
<script src="{{root}}{{script}}"></script>
</head>
<body>
<a class="skip" href="#main">Skip to content</a>
<header>
<p class="brand"><a href="{{root}}">{{brand}}</a></p>
% if status is not None:
<ul class="counts" id="counts">
% for state, number in counts(status):
<li><a href="{{root}}{{address.but(q=state)}}"{{!' aria-current="true"' if address.query.text == state else ''}} data-state="{{state}}"><i class="c {{state}}" aria-hidden="true">{{key_mark(state)}}</i><span><b>{{number}}</b> {{state}}</span></a></li>
% end
<li class="muted">of {{size(status)}}</li>
</ul>
% if len(status.hosts) > 1:
<form id="filter" action="{{root}}" role="search">
% for name, value in address.hidden():
<input type="hidden" name="{{name}}" value="{{value}}">
% end
<label for="q">Filter</label> <input id="q" name="q" type="search" value="{{address.query.text}}" placeholder="free 4x h100 @alice gpu-0*" maxlength="200" autocapitalize="none" spellcheck="false"> <button>Apply</button>
</form>
% end
<p class="age"><span id="asof" data-time="{{status.time}}">as of <time datetime="{{iso(status.time)}}">{{as_of(status)}}</time></span><span id="ago"></span>
<a{{!'' if address.refresh else ' class="no-script"'}} href="{{root}}{{here}}{{address.but(refresh='')}}">{{'Stop refreshing' if address.refresh else 'Refresh'}}</a>
% if not address.refresh:
<a class="no-script" href="{{root}}{{here}}{{address.but(refresh='30')}}">Refresh every 30 s</a>
% end
<button type="button" id="pause" hidden>Pause</button>
% if personal:
<a href="{{root}}me">My GPUs</a>
% end
<a href="{{root}}help">Help</a></p>
% end
</header>
<div id="gone" class="banner gone" role="alert" hidden></div>
<p id="say" class="sr" role="status"></p>
% if status is not None and status.simulated:
<aside class="banner" aria-label="Simulated">{{SIMULATED}}</aside>
% end
<main id="main" class="{{get('layout', '')}}">
{{!base}}</main>
<footer>
% if status is not None:
<p id="totals">{{totals(status)}} {{freshness(status)}}</p>
<p>Utilization is the share of time in which a kernel ran on the GPU; it says nothing about how well the kernel used it. “-” and “?” are unknown, never zero. Memory is in binary units: 1G is 1024 MiB.</p>
% if starred:
<p>{{BY_RULE}}</p>
% end
<ul><li><a href="{{root}}status.txt">Plain text</a></li>
% if twin:
<li><a href="{{root}}{{twin}}">JSON</a></li>
% end
<li><a href="{{root}}help">Help</a></li><li><button type="button" id="theme" hidden>Colours: as the system</button></li><li>gpumon {{version}}</li></ul>
% else:
<p>gpumon {{version}}</p>
% end
</footer>
</body>
</html>
