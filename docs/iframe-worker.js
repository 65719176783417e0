// Search on pages that are opened from a folder: a browser starts no worker from file://, so a hidden frame replaces
// it. The name stops Material's offline plugin from adding a script of another host, which does the same.
if (location.protocol === "file:") {
  window.Worker = class extends EventTarget {
    constructor(url) {
      super();
      const frame = document.createElement("iframe");
      frame.hidden = true;
      document.body.appendChild(frame);
      this.page = frame.contentWindow;
      this.page.document.open();
      this.page.postMessage = data => this.dispatchEvent(new MessageEvent("message", {data}));
      this.page.importScripts = (...names) => names.reduce((before, name) => before.then(() => this.load(name)),
                                                           Promise.resolve());
      this.page.document.write("<html><body></body></html>");
      this.page.document.close();
      this.loaded = this.load(new URL(url, location.href).href);
    }

    load(source) {
      return new Promise((resolve, reject) => {
        const script = this.page.document.createElement("script");
        Object.assign(script, {src: source, onload: resolve, onerror: reject});
        this.page.document.body.appendChild(script);
      });
    }

    postMessage(data) {
      this.loaded.then(() => this.page.dispatchEvent(new MessageEvent("message", {data: structuredClone(data)})));
    }
  };
}
