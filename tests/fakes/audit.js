// What is wrong with a page for people: texts too faint on their ground, parts without a name, what is wider than the
// window, letters that lie on others. Gives a list of sentences. Run in the page by fakes/pages.py, which lets canvases
// remember their `texts`.
(() => {
  const faults = [];
  const parse = (text) => {
    const [red, green, blue, alpha = 1] = text.match(/[\d.]+/g).map(Number);
    return { rgb: [red, green, blue], alpha };
  };
  const light = (rgb) => {
    const [red, green, blue] = rgb.map((value) => {
      const part = value / 255;
      return part <= 0.03928 ? part / 12.92 : ((part + 0.055) / 1.055) ** 2.4;
    });
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue;
  };
  const ground = (element) => {
    for (let at = element; at; at = at.parentElement) {
      const { rgb, alpha } = parse(getComputedStyle(at).backgroundColor);
      if (alpha === 1) return rgb;
    }
    return [255, 255, 255];
  };
  const seen = (element) => element.checkVisibility({ checkOpacity: true }) && element.getClientRects().length > 0;
  const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  while (walker.nextNode()) {
    const element = walker.currentNode.parentElement;
    if (!walker.currentNode.textContent.trim() || !seen(element) || element.closest("script, noscript")) continue;
    const style = getComputedStyle(element);
    const [one, other] = [light(parse(style.color).rgb), light(ground(element))];
    const ratio = (Math.max(one, other) + 0.05) / (Math.min(one, other) + 0.05);
    const size = Number.parseFloat(style.fontSize);
    const large = size >= 24 || (size >= 18.66 && Number(style.fontWeight) >= 700);
    if (ratio < (large ? 3 : 4.5)) faults.push(`contrast ${ratio.toFixed(2)}: ${walker.currentNode.textContent.trim().slice(0, 40)}`);
  }
  for (const element of document.querySelectorAll("button, a, input, select, [role=img], [role=region], dialog, [tabindex='0']")) {
    const labels = [element.textContent, element.getAttribute("aria-label"), ...[...(element.labels ?? [])].map((label) => label.textContent)];
    const by = element.getAttribute("aria-labelledby");
    if (by) labels.push(document.getElementById(by)?.textContent);
    if (seen(element) && !labels.some((label) => label?.trim())) faults.push(`no name: ${element.outerHTML.slice(0, 80)}`);
  }
  const ids = [...document.querySelectorAll("[id]")].map((element) => element.id);
  for (const id of ids) if (ids.indexOf(id) !== ids.lastIndexOf(id)) faults.push(`twice: #${id}`);
  if (document.documentElement.scrollWidth > innerWidth) faults.push(`${document.documentElement.scrollWidth} px wide in a window of ${innerWidth}`);
  // What letters take of a line, within what hides the rest of it.
  const letters = (node) => {
    const element = node.parentElement;
    const range = document.createRange();
    range.selectNodeContents(node);
    const hiding = [];
    for (let at = element; at && at !== document.body; at = at.parentElement) {
      if (getComputedStyle(at).overflow !== "visible" && getComputedStyle(at).display !== "inline") hiding.push(at.getBoundingClientRect());
    }
    const size = Number.parseFloat(getComputedStyle(element).fontSize) * 0.4;
    const edge = (most, side, own) => most(own, ...hiding.map((box) => box[side]));
    return [...range.getClientRects()].map(({ left, right, top, bottom }) => ({
      node,
      text: node.textContent.trim().slice(0, 40),
      left: edge(Math.max, "left", left),
      right: edge(Math.min, "right", right),
      top: edge(Math.max, "top", (top + bottom) / 2 - size),
      bottom: edge(Math.min, "bottom", (top + bottom) / 2 + size),
    }));
  };
  const over = (one, two) => Math.min(one.right, two.right) - Math.max(one.left, two.left) > 1 && Math.min(one.bottom, two.bottom) - Math.max(one.top, two.top) > 1;
  const colliding = (boxes, where) => {
    boxes.sort((one, two) => one.top - two.top);
    boxes.forEach((one, at) => {
      for (let next = at + 1; next < boxes.length && boxes[next].top < one.bottom; next += 1) {
        if (over(one, boxes[next]) && !(one.node && one.node === boxes[next].node)) faults.push(`${where}: "${one.text}" lies on "${boxes[next].text}"`);
      }
    });
  };
  const words = [];
  const texts = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  while (texts.nextNode()) {
    const element = texts.currentNode.parentElement;
    // An id ends in an ellipsis, and the header and what lies over the page scroll over it.
    if (!texts.currentNode.textContent.trim() || !seen(element) || element.closest("script, noscript, header, thead, .id, .skip, .unseen, .gone-line")) continue;
    words.push(...letters(texts.currentNode).filter((box) => box.right - box.left > 1 && box.bottom - box.top > 1));
  }
  colliding(words, "text");
  for (const canvas of document.querySelectorAll("canvas")) {
    const title = canvas.closest("figure").querySelector("h3").textContent;
    if (canvas.texts) colliding(canvas.texts, title);
    for (const { text, left, right } of canvas.texts ?? []) if (left < -1 || right > canvas.width + 1) faults.push(`${title}: "${text}" leaves the chart`);
  }
  return faults;
})()
