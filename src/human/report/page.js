// The page's own program: it reads the blocks of data that stand in the page and draws the table of
// requests, one page of rows at a time. Every text goes into the page as text. It loads nothing.
(() => {
  "use strict";
  const ROWS = 50;
  const byId = (id) => document.getElementById(id);
  const total = JSON.parse(byId("totals").textContent);
  const words = [];
  const rows = [];
  for (const block of document.querySelectorAll("script.rows")) {
    const b = JSON.parse(block.textContent);
    // The text is read; what it takes is not needed twice.
    block.textContent = "";
    for (const word of b.w) words.push(word);
    const said = (value) => typeof value === "number" ? words[value] : value;
    let t = 0;
    for (let i = 0; i < b.n; i++) {
      const more = b.m[i];
      const verb = said(b.v[i]);
      t += b.t[i];
      const row = {
        t,
        agent: words[b.a[i]],
        id: b.i[i],
        end: words[b.e[i]],
        reason: words[b.r[i]],
        stage: words[b.s[i]],
        d: b.d[i],
        args: said(b.x[i]),
        verb,
        more,
        text: "",
      };
      const note = more === undefined ? "" : more.note ?? "";
      const { id, args, reason, stage } = row;
      row.text = [`${row.agent}/${id}`, verb, args, row.end, reason, stage, note].join("\n")
        .toLowerCase();
      rows.push(row);
    }
  }
  const loading = byId("loading");
  if (rows.length !== total.entries) {
    loading.textContent = `This file is not whole: it holds ${rows.length} of ${total.entries} ` +
      "entries. Make it again.";
    loading.setAttribute("role", "alert");
    return;
  }

  const body = document.querySelector("#list tbody");
  const heads = [...document.querySelectorAll("#list th[data-sort]")];
  const [q, agent, end] = [byId("q"), byId("agent"), byId("end")];
  const go = {};
  for (const b of document.querySelectorAll("#pages button")) go[b.dataset.go] = b;
  let found = rows;
  let at = 0;
  let key = "t";
  let down = true;

  const whole = (n) => String(n).replace(/\B(?=(\d{3})+$)/g, ",");
  const time = (ms) => new Date(ms).toISOString();
  const took = (ms) => {
    if (ms < 0) return "";
    if (ms < 1000) return `${ms} ms`;
    if (ms < 10000) return `${(ms / 1000).toFixed(2)} s`;
    const s = Math.round(ms / 1000);
    if (s < 60) return `${s} s`;
    const min = Math.round(s / 60);
    if (s < 3600) return `${Math.floor(s / 60)} min ${s % 60} s`;
    return `${Math.floor(min / 60)} h ${min % 60} min`;
  };
  const make = (tag, text, cls) => {
    const el = document.createElement(tag);
    if (text !== undefined) el.textContent = text;
    if (cls !== undefined) el.className = cls;
    return el;
  };

  function details(row) {
    const tr = make("tr", undefined, "more");
    const td = make("td");
    td.colSpan = 4;
    const dl = make("dl");
    const say = (name, value) => {
      if (value === undefined || value === "") return;
      dl.append(make("dt", name), make("dd", value));
    };
    const more = row.more ?? {};
    say("received", time(row.t));
    say("verb", row.verb);
    say("arguments", row.args);
    say("note", more.note);
    say("outcome", row.end.replaceAll("_", " "));
    say("reason", row.reason);
    say("stage", row.stage);
    say("exit code", more.exit === undefined ? "" : String(more.exit));
    say("signal", more.signal);
    say("attempt", more.attempt === undefined ? "" : String(more.attempt));
    say("replays", more.replays === undefined ? "" : String(more.replays));
    if (more.unnamed === undefined) say("all of it", `./bin/chb show ${row.agent}/${row.id}`);
    td.append(dl);
    tr.append(td);
    return tr;
  }

  function line(row) {
    const tr = make("tr");
    const iso = time(row.t);
    const when = make("td");
    when.append(make("span", iso.slice(0, 10)), " ", make("span", iso.slice(11, 19)));
    const request = make("td");
    const name = row.more !== undefined && row.more.unnamed !== undefined
      ? `${row.agent}: an entry called ${row.id}`
      : `${row.agent}/${row.id}`;
    const button = make("button", name);
    button.type = "button";
    button.setAttribute("aria-expanded", "false");
    button.addEventListener("click", () => {
      const open = button.getAttribute("aria-expanded") === "true";
      button.setAttribute("aria-expanded", String(!open));
      if (open) tr.nextElementSibling.remove();
      else tr.after(details(row));
    });
    request.append(button);
    const said = [row.verb, row.args].filter((s) => s !== "").join(" ");
    if (said !== "") {
      const args = make("span", undefined, "args");
      args.append(make("bdi", said));
      request.append(args);
    }
    const ended = make("td");
    ended.append(make("span", undefined, `key ${total.groups[row.end] ?? "open"}`));
    ended.append(row.end.replaceAll("_", " "));
    const why = row.reason.replaceAll("-", "_");
    if (row.reason !== "" && row.reason !== "ok" && why !== row.end) {
      ended.append(" ", make("span", row.reason, "quiet"));
    }
    tr.append(when, request, ended, make("td", took(row.d), "n"));
    return tr;
  }

  function draw() {
    const pages = Math.max(1, Math.ceil(found.length / ROWS));
    at = Math.min(Math.max(0, at), pages - 1);
    body.replaceChildren(...found.slice(at * ROWS, (at + 1) * ROWS).map(line));
    byId("page").textContent = `Page ${whole(at + 1)} of ${whole(pages)}`;
    byId("count").textContent = found.length === rows.length
      ? `${whole(rows.length)} entries`
      : `${whole(found.length)} of ${whole(rows.length)} entries`;
    go.first.disabled = go.before.disabled = at === 0;
    go.next.disabled = go.last.disabled = at === pages - 1;
  }

  function find() {
    const terms = q.value.toLowerCase().split(/\s+/).filter((s) => s !== "");
    found = rows.filter((row) =>
      (agent.value === "" || row.agent === agent.value) &&
      (end.value === "" || row.end === end.value) &&
      terms.every((term) => row.text.includes(term))
    );
    // The rows come newest first; whatever else is wanted is sorted from that, so equals keep it.
    if (key === "d") found.sort((a, b) => down ? b.d - a.d : a.d - b.d);
    else if (down) found.sort((a, b) => b.t - a.t);
    else found.reverse().sort((a, b) => a.t - b.t);
    at = 0;
    draw();
  }

  let timer = 0;
  q.addEventListener("input", () => {
    clearTimeout(timer);
    timer = setTimeout(find, 120);
  });
  agent.addEventListener("change", find);
  end.addEventListener("change", find);
  byId("find").addEventListener("submit", (event) => {
    event.preventDefault();
    find();
  });
  for (const head of heads) {
    head.firstElementChild.addEventListener("click", () => {
      down = head.dataset.sort === key ? !down : true;
      key = head.dataset.sort;
      for (const other of heads) other.removeAttribute("aria-sort");
      head.setAttribute("aria-sort", down ? "descending" : "ascending");
      find();
    });
  }
  const move = (to) => () => {
    at = to();
    draw();
    byId("scroll").scrollIntoView({ block: "nearest" });
  };
  go.first.addEventListener("click", move(() => 0));
  go.before.addEventListener("click", move(() => at - 1));
  go.next.addEventListener("click", move(() => at + 1));
  go.last.addEventListener("click", move(() => Infinity));

  find();
  loading.remove();
  for (const id of ["find", "scroll", "pages"]) byId(id).hidden = false;
  document.documentElement.dataset.ready = "yes";
})();
