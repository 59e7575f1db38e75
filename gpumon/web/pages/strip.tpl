% for gpu in gpus:
% if gpu.mig:
<span class="mig">\\
% for instance in gpu.mig:
% one = cell(instance)
<i class="c {{one.state}}">{{one.mark}}</i>\\
% end
</span>\\
% else:
% one = cell(gpu)
<i class="c {{one.state}} u{{one.level}}">{{one.mark}}</i>\\
% end
% end
