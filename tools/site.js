// Search over the pages of the documentation, without a server. tools/site puts `sections` before this text: a list of
// [page, its title, id of a heading, the heading, the text below it], as HTML without tags.
"use strict";

function plain(html) {
  return html
    .replace(/&#(\d+);/g, (_, code) => String.fromCodePoint(code))
    .replace(/&lt;/g, "<")
    .replace(/&gt;/g, ">")
    .replace(/&quot;/g, '"')
    .replace(/&amp;/g, "&");
}

const index = sections.map(([page, title, id, heading, text]) => {
  const all = [title, heading, text].map(plain);
  return { page, id, title: all[0], heading: all[1], text: all[2], lower: all.map((one) => one.toLowerCase()) };
});

// How well a section fits a word: 0 if it lacks it. Headings count more than text, manuals more than the changelog.
function fit(section, word) {
  const [title, heading, text] = section.lower;
  const times = text.split(word).length - 1;
  return (heading.includes(word) ? 20 : 0) + (title.includes(word) ? 8 : 0) + Math.min(times, 5);
}

// The sections that have every word of the query, best first.
function find(query) {
  const words = query.toLowerCase().split(/\s+/).filter((word) => word);
  if (!words.length) return [];
  return index
    .map((section) => {
      const fits = words.map((word) => fit(section, word));
      const sum = fits.reduce((a, b) => a + b, 0) + (section.lower[2].includes(words.join(" ")) ? 5 : 0);
      return { section, score: fits.includes(0) ? 0 : /^docs\/(start|guide|reference)/.test(section.page) ? sum * 1.5 : sum };
    })
    .filter((one) => one.score)
    .sort((a, b) => b.score - a.score)
    .map((one) => one.section);
}

// About 220 characters of a section, whole words, from shortly before the first word of the query.
function around(section, words) {
  const at = words.map((word) => section.lower[2].indexOf(word)).filter((place) => place >= 0);
  const near = Math.min(...(at.length ? at : [0])) - 60;
  const start = near > 0 ? section.text.lastIndexOf(" ", near) + 1 : 0;
  const end = section.text.indexOf(" ", start + 220);
  return (start ? "... " : "") + section.text.slice(start, end < 0 ? undefined : end) + (end < 0 ? "" : " ...");
}

// around() with every word of the query marked, as nodes.
function excerpt(section, words) {
  const text = around(section, words);
  const escaped = words.map((word) => word.replace(/[.*+?^${}()|[\]\\]/g, "\\$&"));
  const line = document.createElement("p");
  text.split(new RegExp("(" + escaped.join("|") + ")", "i")).forEach((part, i) => {
    const node = i % 2 ? document.createElement("mark") : document.createElement("span");
    node.textContent = part;
    line.append(node);
  });
  return line;
}

function show(query, up, list, page) {
  const found = find(query);
  page.hidden = query.trim() !== "";
  list.replaceChildren();
  if (!page.hidden) return;
  const head = document.createElement("li");
  head.textContent = found.length ? `${found.length} sections` : "Nothing found.";
  list.append(head);
  const words = query.toLowerCase().split(/\s+/).filter((word) => word);
  for (const section of found.slice(0, 30)) {
    const item = document.createElement("li");
    const link = document.createElement("a");
    link.href = up + section.page + (section.id ? "#" + section.id : "");
    link.textContent = section.title === section.heading ? section.title : `${section.title}: ${section.heading}`;
    link.onclick = () => show("", up, list, page);
    item.append(link, excerpt(section, words));
    list.append(item);
  }
}

if (typeof document !== "undefined") {
  const contents = document.querySelector("nav details");
  if (matchMedia("(max-width: 50em)").matches) contents.open = false;
  const field = document.getElementById("query");
  const update = () => show(field.value, document.body.dataset.up, document.getElementById("found"), document.getElementById("page"));
  field.hidden = false;
  field.addEventListener("input", update);
  field.addEventListener("keydown", (event) => {
    if (event.key === "Escape") field.value = "";
    update();
  });
  update();
} else {
  module.exports = { find };
}
