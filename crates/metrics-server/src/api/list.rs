//! Lists, sent while they are written: a hundred and fifty thousand pods take no more memory than a few.

use std::io::Write;

use bytes::Bytes;
use flate2::Compression;
use flate2::write::GzEncoder;
use futures::stream;
use http::header::{self, HeaderMap, HeaderValue};
use http::{HeaderName, StatusCode};
use plimsoll_ground::rest::answer::{self, Answer, Encoding, Format, Transform, full};
use plimsoll_ground::rest::selector::Selector;
use plimsoll_ground::rest::yaml;
use serde_json::Value;

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
/// Pieces of about this size go out.
const PIECE: usize = 64 << 10;

/// What is to be listed.
#[derive(Debug)]
pub struct Listing {
    pub view: View,
    pub kind: Kind,
    /// `None`: all.
    pub namespace: Option<String>,
    pub selector: Selector,
    pub freshness: Freshness,
    pub next: Next,
}

/// How far it is.
#[derive(Debug)]
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
                AT_ONCE,
                &mut |row| each(Row::Pod(row)),
            ),
        };
        self.freshness.add(ages);
        self.next = next.map_or(Next::End, Next::After);
        !matches!(self.next, Next::End)
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
        let mut sheet = ProtobufSheet::new(form, Number::List, common);
        while listing.some(&mut |row| sheet.row(row)) {
            // Others are waiting, too.
            tokio::task::yield_now().await;
        }
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
