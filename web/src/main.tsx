import { h, render } from "preact";
import { serve } from "./graph/client";
import { PageView } from "./page";
import "./style.css";
import type { Page } from "./types";

function decoded(text: string): Page {
  const bytes = Uint8Array.from(atob(text), (char) => char.charCodeAt(0));
  return JSON.parse(new TextDecoder().decode(bytes));
}

if (typeof document === "undefined") serve();
else {
  const data = document.getElementById("data")!.textContent!;
  const root = document.getElementById("app")!;
  root.textContent = "";
  render(<PageView page={decoded(data)} />, root);
}
