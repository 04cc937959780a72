// What both pages have: shadows at the edges of a box beyond which there is more of it.
"use strict";

/** Marks a frame whose box has more to its left or right; `seen` is told whether it has any. */
function watchEdges(frame, seen = () => {}) {
  const box = frame.firstElementChild;
  const look = () => {
    const room = box.scrollWidth - box.clientWidth;
    frame.classList.toggle("left", box.scrollLeft > 1);
    frame.classList.toggle("right", box.scrollLeft < room - 1);
    seen(room > 1);
  };
  box.addEventListener("scroll", look, { passive: true });
  new ResizeObserver(look).observe(box);
  look();
}

