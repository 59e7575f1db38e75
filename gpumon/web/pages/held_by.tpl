% for holder in holders(part):
<span class="u">\\
% include('user_link.tpl', user=holder.user, starred=holder.user_by is not None)
 {{holder.program + ' ' if programs and holder.program else ''}}{{mib(holder.gpu_memory_used_mib)}} {{held_since(holder, host)}}</span> \\
% end
% if part.reason and part.state != 'idle' and part.reason != host.reason:
<span class="note">{{part.reason}}</span>\\
% end
