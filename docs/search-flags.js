// Search takes a leading hyphen for "without this word", so a flag is looked up without its hyphens.
for (const kind of ["input", "keyup", "focus"]) {
  document.addEventListener(kind, event => {
    const field = event.target;
    if (!field.matches?.("input.md-search__input")) return;
    const found = field.value.replace(/(^|\s)--(?=\w)/g, "$1");
    if (found !== field.value) field.value = found;
  }, true);  // before Material reads the field
}
