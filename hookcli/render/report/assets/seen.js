"use strict";
// What the contact sheet asks of a page: the page's data, and the network's input for an image.
const data = JSON.parse(document.getElementById("data").textContent);
const byId = (id) => document.getElementById(id);
const seenOf = (index) => data.seen[index] ?? "";
