//! Lists, sent while they are written: a hundred and fifty thousand pods take no more memory than a few.

use std::io::Write;

use bytes::Bytes;
use flate2::Compression;
use flate2::write::GzEncoder;
use futures::stream;
use http::header::{self, HeaderMap, HeaderValue};
use http::{HeaderName, StatusCode};
use plimsoll_apimachinery::answer;
use plimsoll_apimachinery::answer::{Answer, Encoding, Format, Transform, full};
use plimsoll_apimachinery::selector::Selector;
use plimsoll_golang::yaml;
use serde_json::Value;
use tokio::task::JoinSet;

use super::freshness::Freshness;
use super::objects::Common;
use super::row::{Kind, Row};
use super::sheet::{Form, JsonSheet, Number, ProtobufSheet};
use crate::store::PodKey;
use crate::view::View;

/// Larger answers are compressed for those who can read that.
const COMPRESSED_FROM: usize = 128 << 10;
/// Pods that are looked at in one go: nothing can be stored meanwhile.
const AT_ONCE: usize = 512;
/// Lists that are longer than this are written in shares of this many pods, by several at once.
const SHARE: usize = 16_384;
/// Pieces of about this size go out.
const PIECE: usize = 64 << 10;

/// What is to be listed.
#[derive(Debug, Clone)]
pub struct Listing {
    pub view: View,
    pub kind: Kind,
    /// `None`: all.
    pub namespace: Option<String>,
    pub selector: Selector,
    pub freshness: Freshness,
    pub next: Next,
    /// The last pod that belongs to it; `None`: there is no such end.
    pub until: Option<PodKey>,
}

/// How far it is.
#[derive(Debug, Clone)]
pub enum Next {
    Beginning,
    After(PodKey),
    End,
}

impl Listing {
    /// Shows some more; `false`: that was all.
    fn some(&mut self, show: &mut dyn FnMut(&Row<'_>)) -> bool {
        let mut ages = self.freshness.ages();
        let mut each = |row: Row<'_>| {
            if let Some((at, _)) = row.taken() {
                ages.observe(at);
            }
            show(&row);
        };
        let after = match &self.next {
            Next::End => return false,
            Next::Beginning => None,
            Next::After(key) => Some(key),
        };
        let next = match self.kind {
            Kind::Node => {
                self.view
                    .visit_nodes(&self.selector, &mut |row| each(Row::Node(row)));
                None
            }
            Kind::Pod => self.view.visit_pods(
                self.namespace.as_deref(),
                &self.selector,
                after,
                self.until.as_ref(),
                AT_ONCE,
                &mut |row| each(Row::Pod(row)),
            ),
        };
        self.freshness.add(ages);
        self.next = next.map_or(Next::End, Next::After);
        !matches!(self.next, Next::End)
    }

    /// The same in shares of so many pods, which one after the other are all of it.
    fn shares(self, of: usize) -> Vec<Self> {
        // A namespace is seldom as large, and nodes are never.
        let milestones = match (self.kind, &self.namespace) {
            (Kind::Pod, None) => self.view.milestones(of),
            _ => Vec::new(),
        };
        let mut shares = Vec::with_capacity(milestones.len() + 1);
        let mut next = self.next.clone();
        for milestone in milestones {
            shares.push(Self {
                next: std::mem::replace(&mut next, Next::After(milestone.clone())),
                until: Some(milestone),
                ..self.clone()
            });
        }
        shares.push(Self { next, ..self });
        shares
    }
}

pub fn accepts_gzip(headers: &HeaderMap) -> bool {
    headers
        .get(header::ACCEPT_ENCODING)
        .and_then(|value| value.to_str().ok())
        .is_some_and(|value| value.split(',').any(|one| one.trim() == "gzip"))
}

/// The answer to a list.
pub async fn answer(
    mut listing: Listing,
    format: &Format,
    form: Form,
    common: Common,
    gzip: bool,
) -> Answer {
    if format.encoding == Encoding::Protobuf {
        let sheet = written(listing.shares(SHARE), form, common).await;
        let (size, pieces) = sheet.end();
        let pieces = pieces.map(Bytes::from);
        return sized(size, pieces, format, gzip);
    }
    let indented = format.encoding == Encoding::Json && format.pretty;
    let mut sheet = JsonSheet::new(indented, form, Number::List, common);
    if format.encoding == Encoding::Yaml {
        while listing.some(&mut |row| sheet.row(row)) {
            tokio::task::yield_now().await;
        }
        sheet.end();
        return whole(as_yaml(&sheet.json.out), format, gzip);
    }
    // What is small goes out in one piece; then its length can be told.
    let mut more = true;
    while more && sheet.json.out.len() < COMPRESSED_FROM {
        more = listing.some(&mut |row| sheet.row(row));
    }
    if !more {
        sheet.end();
        return whole(sheet.json.take(), format, gzip);
    }
    let pieces = JsonPieces {
        listing,
        sheet,
        more,
    };
    streamed(pieces, format, gzip)
}

/// All shares on one sheet, written by as many at once as the runtime has workers.
async fn written(shares: Vec<Listing>, form: Form, common: Common) -> ProtobufSheet {
    // Whoever does not wait for the answer any more does not want the rest of it either: dropped, it ends them.
    let mut writing = JoinSet::new();
    for (index, share) in shares.into_iter().enumerate() {
        writing.spawn(async move { (index, share_written(share, form, common).await) });
    }
    let mut written = writing.join_all().await;
    written.sort_by_key(|(index, _)| *index);
    let mut sheet = ProtobufSheet::new(form, Number::List, common);
    for (_, share) in written {
        sheet.append(share);
    }
    sheet
}

async fn share_written(mut share: Listing, form: Form, common: Common) -> ProtobufSheet {
    let mut sheet = ProtobufSheet::new(form, Number::List, common);
    while share.some(&mut |row| sheet.row(row)) {
        // Others are waiting, too.
        tokio::task::yield_now().await;
    }
    sheet
}

struct JsonPieces {
    listing: Listing,
    sheet: JsonSheet,
    more: bool,
}

impl Iterator for JsonPieces {
    type Item = Bytes;

    fn next(&mut self) -> Option<Bytes> {
        while self.more && self.sheet.json.out.len() < PIECE {
            self.more = self.listing.some(&mut |row| self.sheet.row(row));
            if !self.more {
                self.sheet.end();
            }
        }
        let piece = self.sheet.json.take();
        (!piece.is_empty()).then(|| piece.into())
    }
}

/// One object.
pub fn single(row: &Row<'_>, format: &Format, form: Form, common: Common) -> Bytes {
    if format.encoding == Encoding::Protobuf {
        let mut sheet = ProtobufSheet::new(form, Number::One, common);
        sheet.row(row);
        let (size, pieces) = sheet.end();
        let mut out = Vec::with_capacity(size);
        pieces.for_each(|piece| out.extend_from_slice(&piece));
        return out.into();
    }
    let indented = format.encoding == Encoding::Json && format.pretty;
    let mut sheet = JsonSheet::new(indented, form, Number::One, common);
    sheet.row(row);
    sheet.end();
    match format.encoding {
        Encoding::Yaml => as_yaml(&sheet.json.out).into(),
        _ => sheet.json.take().into(),
    }
}

fn as_yaml(json: &[u8]) -> Vec<u8> {
    let value: Value = serde_json::from_slice(json).unwrap_or_default();
    yaml::to_string(&value).into_bytes()
}

fn plain_format(format: &Format) -> Format {
    Format {
        transform: Transform::None,
        ..format.clone()
    }
}

/// All of an answer is there.
pub fn whole(bytes: impl Into<Bytes>, format: &Format, gzip: bool) -> Answer {
    let bytes = bytes.into();
    sized(bytes.len(), std::iter::once(bytes), format, gzip)
}

fn sized(
    size: usize,
    mut pieces: impl Iterator<Item = Bytes> + Send + 'static,
    format: &Format,
    gzip: bool,
) -> Answer {
    if size >= COMPRESSED_FROM {
        return streamed(pieces, format, gzip);
    }
    let mut bytes = pieces.next().unwrap_or_default();
    if bytes.len() < size {
        let mut all = Vec::with_capacity(size);
        all.extend_from_slice(&bytes);
        pieces.for_each(|piece| all.extend_from_slice(&piece));
        bytes = all.into();
    }
    let format = plain_format(format);
    answer::answer(StatusCode::OK, format.content_type(), full(bytes))
}

fn streamed(
    pieces: impl Iterator<Item = Bytes> + Send + 'static,
    format: &Format,
    gzip: bool,
) -> Answer {
    let content_type = plain_format(format).content_type();
    if !gzip {
        let body = answer::stream(stream::iter(pieces));
        return answer::answer(StatusCode::OK, content_type, body);
    }
    let body = answer::stream(stream::iter(Compressed {
        pieces,
        encoder: Some(GzEncoder::new(Vec::new(), Compression::new(1))),
    }));
    let mut response = answer::answer(StatusCode::OK, content_type, body);
    mark_compressed(response.headers_mut());
    response
}

pub fn mark_compressed(headers: &mut HeaderMap) {
    let put = |headers: &mut HeaderMap, name: HeaderName, value| {
        headers.append(name, HeaderValue::from_static(value));
    };
    put(headers, header::CONTENT_ENCODING, "gzip");
    put(headers, header::VARY, "Accept-Encoding");
}

struct Compressed<I> {
    pieces: I,
    /// `None`: finished.
    encoder: Option<GzEncoder<Vec<u8>>>,
}

impl<I: Iterator<Item = Bytes>> Iterator for Compressed<I> {
    type Item = Bytes;

    fn next(&mut self) -> Option<Bytes> {
        loop {
            let encoder = self.encoder.as_mut()?;
            let Some(piece) = self.pieces.next() else {
                let rest = self.encoder.take()?.finish().ok()?;
                return Some(rest.into());
            };
            // Memory takes whatever is written.
            let _ = encoder.write_all(&piece);
            let out = std::mem::take(encoder.get_mut());
            if !out.is_empty() {
                return Some(out.into());
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::labels::Labels;
    use crate::store::{Settings, Store};

    /// Whatever is listed, by shares of any size.
    #[tokio::test]
    async fn a_list_in_shares_is_the_same_list() {
        const SECOND: i64 = 1_000_000_000;
        let store = Store::new(Settings::new(std::time::Duration::from_secs(15)));
        store.put_node("node", Labels::default());
        let pods: Vec<String> = (0..100).map(|number| format!("p{number}")).collect();
        for pod in &pods {
            store.put_pod("n", pod, [("app", pod)].into_iter().collect());
        }
        for round in 1..=2 {
            let page: String = pods
                .iter()
                .map(|pod| {
                    let whose = format!("{{container=\"c\",namespace=\"n\",pod=\"{pod}\"}}");
                    format!(
                        "container_cpu_usage_seconds_total{whose} {round}\n\
                         container_memory_working_set_bytes{whose} 1024\n"
                    )
                })
                .collect();
            let page = crate::decode::decode(page.as_bytes(), round * SECOND, Default::default());
            store.publish("node", &page.unwrap(), tokio::time::Instant::now());
        }
        let listing = Listing {
            view: View::new(store),
            kind: Kind::Pod,
            namespace: None,
            selector: Selector::default(),
            freshness: Freshness::default(),
            next: Next::Beginning,
            until: None,
        };
        let common = Common::new(Kind::Pod, "metrics.k8s.io/v1beta1", 0);
        let bytes = |sheet: ProtobufSheet| sheet.end().1.collect::<Vec<_>>().concat();
        let whole = bytes(share_written(listing.clone(), Form::Object, common).await);
        assert!(whole.len() > 100 * 50, "{}", whole.len());
        for of in [1, 7, 50, 99, 100, 101, 1_000] {
            let shares = listing.clone().shares(of);
            assert_eq!(shares.len(), 1 + 99 / of);
            let sheet = written(shares, Form::Object, common).await;
            assert!(bytes(sheet) == whole, "shares of {of}");
        }
    }

    /// A page with everything that is read, as a kubelet has it.
    const PAGE: &str = "# TYPE node_cpu_usage_seconds_total counter\n\
        node_cpu_usage_seconds_total 12.5 1795000000000\n\
        node_memory_working_set_bytes 104857600 1795000000000\n\
        node_swap_usage_bytes 4096 1795000000000\n\
        container_start_time_seconds{container=\"c\",namespace=\"n\",pod=\"p1\"} 1794999000.5\n\
        container_cpu_usage_seconds_total{container=\"c\",namespace=\"n\",pod=\"p1\"} 3.25 1795000000000\n\
        container_memory_working_set_bytes{container=\"c\",namespace=\"n\",pod=\"p1\"} 1048576 1795000000000\n\
        container_swap_usage_bytes{container=\"c\",namespace=\"n\",pod=\"p1\"} 0 1795000000000\n\
        container_cpu_usage_seconds_total{container=\"d\",namespace=\"n\",pod=\"p1\"} 9 1795000000000\n\
        container_memory_working_set_bytes{container=\"d\",namespace=\"n\",pod=\"p1\"} 1 1795000000000\n";

    /// Pages of kubelets that nobody means well with: whatever is made of them can be listed, and nothing panics.
    #[tokio::test]
    async fn whatever_kubelets_tell_can_be_listed() {
        use plimsoll_test_support::hostile::{garbled, rounds};
        let now = tokio::time::Instant::now();
        rounds(400, |seed| {
            let random = &mut fastrand::Rng::with_seed(seed);
            let mut settings = Settings::new(std::time::Duration::from_secs(15));
            (settings.lenient_pods, settings.swap) = (random.bool(), random.bool());
            let store = Store::new(settings);
            store.put_node("node", Labels::default());
            store.put_pod("n", "p1", [("app", "a")].into_iter().collect());
            for round in 0..4 {
                let page = garbled(PAGE.as_bytes(), random);
                let asked_at = match random.u8(..8) {
                    0 => i64::MAX,
                    1 => i64::MIN,
                    _ => 1_795_000_000_000_000_000 + round * 15_000_000_000,
                };
                let reading = store.settings().reading();
                if let Ok(page) = crate::decode::decode(&page, asked_at, reading) {
                    store.publish("node", &page, now);
                }
            }
            for kind in [Kind::Node, Kind::Pod] {
                let mut listing = Listing {
                    view: View::new(store.clone()),
                    kind,
                    namespace: None,
                    selector: Selector::default(),
                    freshness: Freshness::default(),
                    next: Next::Beginning,
                    until: None,
                };
                let common = Common::new(kind, "metrics.k8s.io/v1beta1", 0);
                let mut sheet = ProtobufSheet::new(Form::Object, Number::List, common);
                let mut json = JsonSheet::new(false, Form::Object, Number::List, common);
                let mut again = listing.clone();
                while listing.some(&mut |row| sheet.row(row)) {}
                while again.some(&mut |row| json.row(row)) {}
                json.end();
                let shown: Value = serde_json::from_slice(&json.json.take()).unwrap();
                assert!(shown["items"].is_array(), "{shown}");
            }
        });
    }
}
