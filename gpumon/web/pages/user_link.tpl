% if user is None:
<span class="note">unknown owner</span>\\
% else:
<a href="{{root}}user/{{segment(user)}}">{{user}}</a>{{'*' if starred else ''}}\\
% end
