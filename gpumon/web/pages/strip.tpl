% for gpu in gpus:
% if gpu.mig:
<span class="mig">\\
% for instance in gpu.mig:
% one = cell(instance)
<i class="c {{one.state}}" data-gpu="{{gpu.index}}">{{one.mark}}</i>\\
% end
</span>\\
% else:
% one = cell(gpu)
<i class="c {{one.state}}{{' u%d' % one.level if one.level else ''}}" data-gpu="{{gpu.index}}">{{one.mark}}</i>\\
% end
% end
