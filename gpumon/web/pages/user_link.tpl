% if user is None:
<span class="note">unknown owner</span>\\
% elif user == SOMEBODY:
<span class="note">{{user}}</span>\\
% else:
<a href="{{root}}user/{{segment(user)}}">{{user}}</a>{{'*' if starred else ''}}\\
% end
