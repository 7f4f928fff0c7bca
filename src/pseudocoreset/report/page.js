"use strict";
(() => {
  // Shows the image under the pointer enlarged, in the corner that is farthest from the pointer.
  const box = document.getElementById("zoom");
  const hide = () => { box.hidden = true; };
  const show = (event) => {
    const found = event.target instanceof Element ? event.target.closest("[data-words]") : null;
    if (!found) { hide(); return; }
    const images = Array.from(found.querySelectorAll("img"), (image) => {
      const copy = new Image();
      copy.src = image.src;
      copy.alt = "";
      return copy;
    });
    const words = document.createElement("p");
    words.textContent = found.dataset.words;
    box.replaceChildren(...images, words);
    box.classList.toggle("left", event.clientX > innerWidth / 2);
    box.classList.toggle("top", event.clientY > innerHeight / 2);
    box.hidden = false;
  };
  document.addEventListener("pointerover", show);
  document.addEventListener("pointerleave", hide);
  document.addEventListener("scroll", hide, { passive: true });
  document.addEventListener("keydown", (event) => { if (event.key === "Escape") hide(); });
})();
