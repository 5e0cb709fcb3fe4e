// The virtual list of TanStack as a hook: which rows are in view.

import "./node_env.js";
import { elementScroll, observeElementOffset, observeElementRect, Virtualizer } from "./pages/vendor/virtual-core/index.js";
import { useEffect, useLayoutEffect, useRef, useState } from "./pages/vendor/htm/standalone.module.js";

/** Use a virtual list of `count` rows of `height` pixels inside the element of `scroller`. */
export function useVirtual(scroller, count, height) {
  const [, draw] = useState(0);
  const list = useRef(null);
  const options = {
    count,
    estimateSize: () => height,
    getScrollElement: () => scroller.current,
    observeElementOffset,
    observeElementRect,
    scrollToFn: elementScroll,
    overscan: 8,
    onChange: () => draw((number) => number + 1),
  };
  list.current ??= new Virtualizer(options);
  list.current.setOptions(options);
  useLayoutEffect(() => list.current._didMount(), []);
  useLayoutEffect(() => list.current._willUpdate());
  useEffect(() => list.current.measure(), [height]);
  return list.current;
}
