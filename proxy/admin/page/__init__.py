"""The page on `/`: HTML, styles and scripts in `static`, served as they are, and a script with the units of
quotas (`routes`). No build step.

`routes` serves the files. The scripts read only the API (`/api/…`) and its stream of events:

- `main.js` polls, and shows each answer; `events.js` reads events; `api.js` sends requests, with the token
- `lists.js` makes table rows and details of records; `quota_form.js` previews and applies a changed quota
- `dom.js` makes elements, `format.js` texts of numbers, `spark.js` small charts

Decisions:

- Clients choose their names. Every text becomes a text node: the policy (`routes.POLICY`) permits no inline
  script, no HTML from strings (trusted types), and no other host.
- The files have no secrets, so they are served without a token: a browser cannot send one when it opens a
  page. The page asks for the token once the API answers 401, and keeps it for the tab.
- Events tell when to look; the numbers always come from the API. So the page is right without events, too.
"""
