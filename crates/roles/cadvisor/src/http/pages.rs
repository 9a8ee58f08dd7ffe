//! HTML pages: plain, no scripts, no external resources.

use std::fmt::Write as _;
use std::sync::Arc;

use crate::rest::{Range, Snapshot, by_alias, by_path, cpu_inst};
use http::StatusCode;
use plimsoll_containers::Namespace;
use plimsoll_golang::strconv::quote;
use plimsoll_golang::url;
use plimsoll_observe::store::{Container, Store};
use plimsoll_observe::{Observer, Sample};

use super::api::blocking;
use super::response::{self, Failure, Reply, escape_html};
use super::service::ServerState;

type Page = Result<String, Failure>;

/// `/containers<path>`.
pub async fn container(shared: Arc<ServerState>, path: String) -> Result<Reply, Failure> {
    let page = blocking(move || {
        let observer = shared.backend.observer();
        let found = by_path(&observer.store, &path).map_err(|missing| {
            not_found(format!(
                "failed to get container {} with error: {missing}",
                quote(&path)
            ))
        })?;
        Ok(container_page(observer, &found, &up(&path)))
    });
    let page: Page = page.await?;
    Ok(response::html(page?))
}

/// `/docker/`, `/podman/`, and a container below.
pub async fn runtime(
    shared: Arc<ServerState>,
    namespace: Namespace,
    rest: String,
) -> Result<Reply, Failure> {
    let page = blocking(move || {
        let observer = shared.backend.observer();
        let name = rest.trim_start_matches('/');
        if name.is_empty() {
            let status = shared.backend.runtime(namespace).map_err(|error| {
                Failure::internal(format!(
                    "failed to get {} info: {error}",
                    namespace.as_str()
                ))
            })?;
            return Ok(runtime_page(&observer.store, namespace, &status));
        }
        let found = by_alias(&observer.store, namespace, name).map_err(|missing| {
            // One quotes the name and the other does not.
            let name = match namespace {
                Namespace::Podman => rest.clone(),
                _ => quote(&rest),
            };
            not_found(format!(
                "failed to get container {name} with error: {missing}"
            ))
        })?;
        Ok(container_page(observer, &found, &up(&rest)))
    });
    let page: Page = page.await?;
    Ok(response::html(page?))
}

fn not_found(text: String) -> Failure {
    Failure::new(StatusCode::NOT_FOUND, text)
}

/// From a page back to the top, whatever prefix is in front: `..` for each part of the path.
fn up(path: &str) -> String {
    "../".repeat(path.matches('/').count())
}

const STYLE: &str = "body{font:14px system-ui,sans-serif;margin:2em auto;max-width:72em;padding:0 1em}\
h1{font-size:1.3em;overflow-wrap:anywhere}h2{font-size:1.1em;margin-top:1.6em}\
table{border-collapse:collapse;width:100%}th,td{text-align:left;padding:.25em .8em .25em 0;\
border-bottom:1px solid #8884;overflow-wrap:anywhere;vertical-align:top}td.n,th.n{text-align:right;\
white-space:nowrap}nav a{margin-right:1em}@media(prefers-color-scheme:dark){body{background:#111;\
color:#ddd}a{color:#8bf}}";

/// `name` is the container's path, or what a list is of.
fn frame(name: &str, to_top: &str, content: &str) -> String {
    let name = escape_html(name);
    // A bare slash says nothing in a tab or at the top of a page.
    let heading = match name.as_str() {
        "/" => "Machine (/)",
        name => name,
    };
    format!(
        "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">\
         <meta name=\"viewport\" content=\"width=device-width\"><meta http-equiv=\"refresh\" content=\"10\">\
         <title>plimsoll - {heading}</title><style>{STYLE}</style></head><body>\
         <nav><a href=\"{to_top}containers/\">containers</a><a href=\"{to_top}docker/\">docker</a>\
         <a href=\"{to_top}podman/\">podman</a><a href=\"{to_top}metrics\">metrics</a>\
         <a href=\"{to_top}validate/\">validate</a></nav>\n<h1>{heading}</h1>\n{content}</body></html>\n"
    )
}

fn container_page(observer: &Observer, container: &Container, to_top: &str) -> String {
    let snapshot = Snapshot::take(container, &Range::newest(2));
    let mut out = String::new();
    parents(&mut out, &snapshot.path, to_top);
    describe(&mut out, &snapshot);
    let (last, newest) = last_two(&snapshot.samples);
    if let Some(sample) = newest {
        usage(&mut out, last, sample);
        interfaces(&mut out, sample);
        filesystems(&mut out, sample);
    }
    let children = observer.store.children(&snapshot.path);
    containers(&mut out, "Subcontainers", &children, to_top);
    frame(&snapshot.path, to_top, &out)
}

fn runtime_page(store: &Store, namespace: Namespace, status: &[(String, String)]) -> String {
    let mut out = String::from("<h2>Status</h2><table>");
    for (name, value) in status {
        row(&mut out, name, value);
    }
    out.push_str("</table>");
    containers(
        &mut out,
        "Containers",
        &store.of_namespace(namespace),
        "../",
    );
    frame(namespace.as_str(), "../", &out)
}

fn row(out: &mut String, name: &str, value: &str) {
    let (name, value) = (escape_html(name), escape_html(value));
    let _ = write!(out, "<tr><th>{name}</th><td>{value}</td></tr>");
}

/// A link to a container's page. Cgroup names may hold anything but a slash and a zero byte.
fn link(path: &str, to_top: &str) -> String {
    let href = url::escape(path, |byte| byte == b'/' || url::is_unreserved(byte));
    format!(
        "<a href=\"{to_top}containers{href}\">{}</a>",
        escape_html(path)
    )
}

fn parents(out: &mut String, path: &str, to_top: &str) {
    if path == "/" {
        return;
    }
    out.push_str("<p>in ");
    out.push_str(&link("/", to_top));
    for (at, _) in path.match_indices('/').skip(1) {
        let _ = write!(out, " {}", link(&path[..at], to_top));
    }
    out.push_str("</p>");
}

fn describe(out: &mut String, snapshot: &Snapshot) {
    out.push_str("<table>");
    if let Some(identity) = &snapshot.identity {
        row(out, "name", identity.name());
        row(out, "image", &identity.image);
        row(out, "runtime", identity.namespace.as_str());
        for (key, value) in &identity.labels {
            row(out, key, value);
        }
    }
    let spec = &snapshot.spec;
    if spec.has_cpu {
        row(out, "CPU shares", &spec.cpu_shares.to_string());
        if spec.cpu_quota_us > 0 && spec.cpu_period_us > 0 {
            let cores = spec.cpu_quota_us as f64 / spec.cpu_period_us as f64;
            row(out, "CPU limit", &format!("{cores:.2} cores"));
        }
    }
    if spec.has_memory && spec.memory_limit < 1 << 62 {
        row(out, "memory limit", &bytes(spec.memory_limit));
    }
    out.push_str("</table>");
}

fn last_two(samples: &[Sample]) -> (Option<&Sample>, Option<&Sample>) {
    match samples {
        [.., last, newest] => (Some(last), Some(newest)),
        [newest] => (None, Some(newest)),
        [] => (None, None),
    }
}

fn cores(last: Option<&Sample>, sample: &Sample) -> String {
    match cpu_inst(last, sample) {
        Some(rate) => format!("{:.3} cores", rate.usage.total as f64 / 1e9),
        None => "not known yet".to_owned(),
    }
}

fn usage(out: &mut String, last: Option<&Sample>, sample: &Sample) {
    out.push_str("<h2>Usage</h2><table>");
    row(out, "CPU", &cores(last, sample));
    row(
        out,
        "CPU time",
        &format!("{:.1} s", sample.cpu.total_ns as f64 / 1e9),
    );
    let throttled = sample.cpu.cfs.throttled_ns;
    if throttled > 0 {
        row(
            out,
            "throttled",
            &format!("{:.1} s", throttled as f64 / 1e9),
        );
    }
    row(out, "memory", &bytes(sample.memory.usage));
    row(out, "working set", &bytes(sample.memory.working_set));
    row(out, "resident", &bytes(sample.memory.rss));
    row(out, "page cache", &bytes(sample.memory.cache));
    if sample.memory.swap > 0 {
        row(out, "swap", &bytes(sample.memory.swap));
    }
    out.push_str("</table>");
}

fn interfaces(out: &mut String, sample: &Sample) {
    if sample.network.interfaces.is_empty() {
        return;
    }
    out.push_str("<h2>Network</h2><table><tr><th>interface</th><th class=n>received</th><th class=n>sent</th></tr>");
    for i in &sample.network.interfaces {
        let (name, rx, tx) = (
            escape_html(i.name.as_str()),
            bytes(i.rx_bytes),
            bytes(i.tx_bytes),
        );
        let _ = write!(
            out,
            "<tr><td>{name}</td><td class=n>{rx}</td><td class=n>{tx}</td></tr>"
        );
    }
    out.push_str("</table>");
}

fn filesystems(out: &mut String, sample: &Sample) {
    if sample.filesystems.is_empty() {
        return;
    }
    out.push_str("<h2>File systems</h2><table><tr><th>device</th><th class=n>used</th><th class=n>capacity</th></tr>");
    for fs in &sample.filesystems {
        let (device, used) = (escape_html(fs.device.as_str()), bytes(fs.usage));
        let capacity = bytes(fs.capacity);
        let _ = write!(
            out,
            "<tr><td>{device}</td><td class=n>{used}</td><td class=n>{capacity}</td></tr>"
        );
    }
    out.push_str("</table>");
}

fn containers(out: &mut String, title: &str, list: &[Arc<Container>], to_top: &str) {
    if list.is_empty() {
        return;
    }
    let _ = write!(
        out,
        "<h2>{title}</h2><table><tr><th>container</th><th>name</th><th class=n>CPU</th>\
         <th class=n>working set</th></tr>"
    );
    for container in list {
        let snapshot = Snapshot::take(container, &Range::newest(2));
        let (last, newest) = last_two(&snapshot.samples);
        let cpu = newest.map(|sample| cores(last, sample)).unwrap_or_default();
        let memory = newest.map(|sample| bytes(sample.memory.working_set));
        let name = snapshot.identity.as_deref().map_or("", display_name);
        let _ = write!(
            out,
            "<tr><td>{}</td><td>{}</td><td class=n>{cpu}</td><td class=n>{}</td></tr>",
            link(&snapshot.path, to_top),
            escape_html(name),
            memory.unwrap_or_default(),
        );
    }
    out.push_str("</table>");
}

/// What people call it: the pod's word for it where there is one.
fn display_name(identity: &plimsoll_containers::Identity) -> &str {
    match identity.label("io.kubernetes.container.name") {
        "" => identity.name(),
        name => name,
    }
}

fn bytes(count: u64) -> String {
    const UNITS: [&str; 6] = ["KiB", "MiB", "GiB", "TiB", "PiB", "EiB"];
    if count < 1024 {
        return format!("{count} B");
    }
    let mut size = count as f64 / 1024.0;
    let mut unit = UNITS[0];
    for next in &UNITS[1..] {
        if size < 1024.0 {
            break;
        }
        size /= 1024.0;
        unit = next;
    }
    format!("{size:.1} {unit}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes() {
        for (count, expected) in [
            (0, "0 B"),
            (1023, "1023 B"),
            (1536, "1.5 KiB"),
            (25_274_793_984, "23.5 GiB"),
            (u64::MAX, "16.0 EiB"),
        ] {
            assert_eq!(bytes(count), expected);
        }
    }

    #[test]
    fn every_page_has_a_title() {
        for (name, expected) in [
            ("/", "Machine (/)"),
            ("/a<b", "/a&lt;b"),
            ("docker", "docker"),
        ] {
            let page = frame(name, "../", "");
            assert!(
                page.contains(&format!("<title>plimsoll - {expected}</title>")),
                "{page}"
            );
            assert!(page.contains(&format!("<h1>{expected}</h1>")), "{page}");
        }
    }

    #[test]
    fn links_hold_up() {
        assert_eq!(up("/"), "../");
        assert_eq!(up("/a/b"), "../../");
        assert_eq!(
            link("/a b/\"<x>", "../"),
            "<a href=\"../containers/a%20b/%22%3Cx%3E\">/a b/&#34;&lt;x&gt;</a>"
        );
    }
}
