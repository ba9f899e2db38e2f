// Keeps where the pages of the session are, so that an address without it (a link, a bookmark) opens without signing in again.
// The storage belongs to this origin, port included: another server on this machine cannot read it.
"use strict";
const KEY = "crew_journal.place";
const { place, rest, ended } = document.body.dataset;
try {
  if (place) {
    localStorage.setItem(KEY, place);
  } else if (ended !== undefined) {
    localStorage.removeItem(KEY);
  } else if (/^[\w-]{22}$/.test(localStorage.getItem(KEY) ?? "")) {
    location.replace(`/ui/s/${localStorage.getItem(KEY)}${rest}`);
  }
} catch {
  // without storage a person signs in again
}
