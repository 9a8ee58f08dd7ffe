//! Rows in, bytes out: objects and lists in every form, written as the rows come.

use plimsoll_apimachinery::protobuf::envelope;

use super::figures;
use super::json::Json;
use super::objects::{self, Common};
use super::protobuf::{self, ListLayout};
use super::row::Row;

/// What a row is shown as. Metadata and tables are of a version of `meta.k8s.io`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Form {
    Object,
    Metadata {
        meta: &'static str,
    },
    Table {
        meta: &'static str,
        include: Include,
    },
}

/// What of the object a table's row carries.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Include {
    Nothing,
    Metadata,
    Object,
}

/// One object, or a list of them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Number {
    One,
    List,
}

#[derive(Debug)]
pub struct JsonSheet {
    pub json: Json,
    form: Form,
    number: Number,
    common: Common,
    rows: usize,
    /// Which figures a table has columns for: its first row that has any says so.
    figures: Figures,
    /// Where a table's columns stand.
    columns: std::ops::Range<usize>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Figures {
    /// All rows so far were of pods whose containers have none.
    Unknown,
    Usual,
    WithSwap,
}

impl JsonSheet {
    pub fn new(indented: bool, form: Form, number: Number, common: Common) -> Self {
        Self {
            json: Json::new(indented),
            form,
            number,
            common,
            rows: 0,
            figures: Figures::Unknown,
            columns: 0..0,
        }
    }

    pub fn row(&mut self, row: &Row<'_>) {
        if let Form::Table { meta, include } = self.form {
            return self.table_row(row, meta, include);
        }
        let (json, common) = (&mut self.json, &self.common);
        let alone = self.number == Number::One;
        if !alone {
            if self.rows == 0 {
                match self.form {
                    Form::Metadata { meta } => {
                        open_list(json, "PartialObjectMetadataList", meta, "items");
                    }
                    _ => open_list(json, common.kind.list_name(), common.api_version, "items"),
                }
                json.open(b'[');
            }
            json.element();
        }
        self.rows += 1;
        match self.form {
            Form::Metadata { meta } => objects::partial(json, row, common, meta),
            _ => objects::object(json, row, common, alone),
        }
    }

    fn table_row(&mut self, row: &Row<'_>, meta: &str, include: Include) {
        let json = &mut self.json;
        let is_first = self.rows == 0;
        self.rows += 1;
        if is_first {
            open_list(json, "Table", meta, "");
            json.key("columnDefinitions");
        }
        let total = row.total().filter(|_| self.figures == Figures::Unknown);
        if let Some(total) = total {
            self.figures = match total.swap {
                Some(_) => Figures::WithSwap,
                None => Figures::Usual,
            };
        }
        if is_first {
            let from = json.out.len();
            columns(json, self.figures);
            self.columns = from..json.out.len();
            json.key("rows").open(b'[');
        } else if total.is_some() && json.is_whole() {
            // Now it is known what they should have been.
            let mut right = json.elsewhere(1);
            columns(&mut right, self.figures);
            json.out.splice(self.columns.clone(), right.out);
        }
        json.element();
        table_row(json, row, &self.common, meta, include, self.figures);
    }

    /// Ends the document.
    pub fn end(&mut self) {
        let json = &mut self.json;
        match (self.rows, self.form, self.number) {
            (0, Form::Table { meta, .. }, _) => {
                open_list(json, "Table", meta, "");
                json.key("columnDefinitions").literal("null");
                json.key("rows").literal("null");
                json.close(b'}');
            }
            // Where nothing was found, metadata are no list at all.
            (0, Form::Metadata { meta }, Number::List) => {
                open_list(json, "PartialObjectMetadataList", meta, "items");
                json.literal("null");
                json.close(b'}');
            }
            (0, Form::Object, Number::List) => {
                let (kind, version) = (self.common.kind.list_name(), self.common.api_version);
                open_list(json, kind, version, "items");
                json.list(|_| {});
                json.close(b'}');
            }
            (_, Form::Object | Form::Metadata { .. }, Number::One) => {}
            _ => {
                json.close(b']');
                json.close(b'}');
            }
        }
        json.end();
    }
}

/// The head of a list, up to what `items` are.
fn open_list(json: &mut Json, kind: &str, api_version: &str, items: &'static str) {
    json.open(b'{');
    json.field("kind", kind);
    json.field("apiVersion", api_version);
    json.key("metadata").object(|_| {});
    if !items.is_empty() {
        json.key(items);
    }
}

fn columns(json: &mut Json, figures: Figures) {
    json.list(|json| {
        for (name, format, description) in [
            ("Name", "name", "Name of the resource"),
            ("cpu", "quantity", ""),
            ("memory", "quantity", ""),
            ("swap", "quantity", ""),
            ("Window", "duration", ""),
        ] {
            let is_there = match name {
                "cpu" | "memory" => figures != Figures::Unknown,
                "swap" => figures == Figures::WithSwap,
                _ => true,
            };
            if !is_there {
                continue;
            }
            json.element();
            json.object(|json| {
                json.field("name", name);
                json.field("type", "string");
                json.field("format", format);
                json.field("description", description);
                json.key("priority").literal("0");
            });
        }
    });
}

fn table_row(
    json: &mut Json,
    row: &Row<'_>,
    common: &Common,
    meta: &str,
    include: Include,
    shown: Figures,
) {
    json.object(|json| {
        json.key("cells").list(|json| {
            let total = row.total();
            let cpu = figures::cpu(total.map_or(0, |total| total.nanocores));
            let memory = figures::memory(total.map_or(0, |total| total.memory));
            let swap = figures::memory(total.and_then(|total| total.swap).unwrap_or(0));
            let window = figures::span(row.window());
            let used = [cpu.as_str(), memory.as_str(), swap.as_str()];
            let used = match shown {
                Figures::Unknown => &[],
                Figures::Usual => &used[..2],
                Figures::WithSwap => &used[..],
            };
            let cells = [row.name()].into_iter().chain(used.iter().copied());
            for cell in cells.chain([window.as_str()]) {
                json.element();
                json.text(cell);
            }
        });
        json.key("object");
        match include {
            Include::Nothing => json.literal("null"),
            Include::Metadata => objects::partial(json, row, common, meta),
            Include::Object => objects::object(json, row, common, true),
        }
    });
}

/// Protobuf says how long a list is before it begins, so it is kept until it is complete: in pieces, which are given
/// back one by one as they are sent.
#[derive(Debug)]
pub struct ProtobufSheet {
    form: Form,
    number: Number,
    common: Common,
    pieces: Vec<Vec<u8>>,
    size: usize,
    item: Vec<u8>,
}

const PIECE: usize = 64 << 10;

impl ProtobufSheet {
    pub fn new(form: Form, number: Number, common: Common) -> Self {
        Self {
            form,
            number,
            common,
            pieces: Vec::new(),
            size: 0,
            item: Vec::new(),
        }
    }

    fn layout(&self) -> ListLayout {
        match self.form {
            Form::Metadata { meta } if meta.ends_with("/v1beta1") => ListLayout::MetadataLast,
            _ => ListLayout::MetadataFirst,
        }
    }

    pub fn row(&mut self, row: &Row<'_>) {
        self.item.clear();
        match self.form {
            Form::Metadata { .. } => {
                let mut metadata = Vec::new();
                protobuf::partial(&mut metadata, row, &self.common);
                self.item = metadata;
            }
            Form::Object | Form::Table { .. } => {
                protobuf::object(&mut self.item, row, &self.common);
            }
        }
        let layout = self.layout();
        let is_full = |piece: &Vec<u8>| piece.len() + self.item.len() + 8 > piece.capacity();
        if self.pieces.last().is_none_or(is_full) {
            let room = PIECE.max(self.item.len() + 8);
            self.pieces.push(Vec::with_capacity(room));
        }
        if let Some(piece) = self.pieces.last_mut() {
            let before = piece.len();
            match self.number {
                Number::One => piece.extend_from_slice(&self.item),
                Number::List => layout.element(piece, &self.item),
            }
            self.size += piece.len() - before;
        }
    }

    /// What comes after it.
    pub fn append(&mut self, other: Self) {
        self.size += other.size;
        self.pieces.extend(other.pieces);
    }

    /// All of it, in order.
    pub fn end(self) -> (usize, impl Iterator<Item = Vec<u8>>) {
        let (kind, api_version) = match (self.form, self.number) {
            (Form::Metadata { meta }, Number::One) => ("PartialObjectMetadata", meta),
            (Form::Metadata { meta }, Number::List) => ("PartialObjectMetadataList", meta),
            (_, Number::One) => (self.common.kind.name(), self.common.api_version),
            (_, Number::List) => (self.common.kind.list_name(), self.common.api_version),
        };
        let layout = self.layout();
        let metadata = match self.number {
            Number::One => Vec::new(),
            Number::List => layout.metadata().to_vec(),
        };
        let size = self.size + metadata.len();
        let (mut head, tail) = envelope(api_version, kind, size);
        let mut tail = tail.to_vec();
        match layout {
            ListLayout::MetadataFirst => head.extend(metadata),
            ListLayout::MetadataLast => tail.splice(..0, metadata).for_each(drop),
        }
        let total = head.len() + self.size + tail.len();
        let pieces = std::iter::once(head)
            .chain(self.pieces)
            .chain(std::iter::once(tail));
        (total, pieces)
    }
}

#[cfg(test)]
#[path = "sheet_tests.rs"]
mod tests;
