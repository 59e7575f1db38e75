<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width,initial-scale=1">
<title>{{title}}</title>
<link rel="stylesheet" href="{{root}}{{css}}">
<link rel="icon" href="{{root}}{{icon}}">
</head>
<body>
<a class="skip" href="#main">Skip to content</a>
<header>
<p class="brand"><a href="{{root}}">{{brand}}</a></p>
% if status is not None:
<ul class="counts">
% for state, number in counts(status):
<li><i class="c {{state}}" aria-hidden="true">{{key_mark(state)}}</i><span><b>{{number}}</b> {{state}}</span></li>
% end
<li class="muted">of {{size(status)}}</li>
</ul>
<p class="age">as of <time datetime="{{iso(status.time)}}">{{as_of(status)}}</time>, {{freshness(status)}}
% if refreshing:
<a href="{{root}}{{here}}">Stop refreshing</a></p>
% else:
<a href="{{root}}{{here}}">Refresh</a> <a href="{{root}}{{here}}?refresh=30">Refresh every 30 s</a></p>
% end
% end
</header>
% if status is not None and status.simulated:
<aside class="banner" aria-label="Simulated">{{SIMULATED}}</aside>
% end
<main id="main" class="{{get('layout', '')}}">
{{!base}}</main>
<footer>
% if status is not None:
<p>{{totals(status)}}</p>
<p>Utilization is the share of time in which a kernel ran on the GPU; it says nothing about how well the kernel used it. “-” and “?” are unknown, never zero. Memory is in binary units: 1G is 1024 MiB.</p>
% if starred:
<p>{{BY_RULE}}</p>
% end
<ul><li><a href="{{root}}status.txt">Plain text</a></li><li><a href="{{root}}{{twin}}">JSON</a></li><li>gpumon {{version}}</li></ul>
% else:
<p>gpumon {{version}}</p>
% end
</footer>
</body>
</html>
