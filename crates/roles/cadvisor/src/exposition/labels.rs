//! Label sets, rendered once a container and not once a series.
//!
//! Every sample carries the union of all containers' label names, sorted by name, so an extra label of a family
//! (`device`, `cpu`, …) belongs somewhere in the middle. A container's labels are therefore kept as one text with the
//! offset of each label in it, and an extra label is spliced in at the offset where its name sorts.

use std::collections::BTreeMap;

use super::bounds::cut;

/// The label names of a page, sorted, and where each extra label goes.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct LabelNames {
    names: Vec<String>,
}

/// One container's labels as text: `a="1",b="2",`.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Rendered {
    /// The labels, then a brace and a blank in place of the last comma: what most lines need, in one piece.
    closed: Box<[u8]>,
    /// Where each label starts; one more than there are labels.
    starts: Box<[u32]>,
    is_plain: bool,
}

impl LabelNames {
    /// `names` in any order; equal names count once.
    pub fn new(names: impl IntoIterator<Item = String>) -> Self {
        let mut names: Vec<String> = names.into_iter().collect();
        names.sort_unstable();
        names.dedup();
        Self { names }
    }

    /// The values for these names; a container without a label has it empty.
    pub fn render(&self, labels: &BTreeMap<String, String>) -> Rendered {
        let mut text = Vec::new();
        let mut starts = Vec::with_capacity(self.names.len() + 1);
        for name in &self.names {
            starts.push(text.len() as u32);
            let value = labels.get(name).map_or("", String::as_str);
            write_label(name, cut(value), &mut text);
        }
        starts.push(text.len() as u32);
        match text.last_mut() {
            Some(comma) => *comma = b'}',
            None => text.push(b'}'),
        }
        text.push(b' ');
        Rendered {
            is_plain: !text.contains(&b'\\'),
            closed: text.into(),
            starts: starts.into(),
        }
    }

    pub fn iter(&self) -> impl Iterator<Item = &str> {
        self.names.iter().map(String::as_str)
    }

    /// How many of the page's labels sort before `extra`.
    pub fn place(&self, extra: &str) -> usize {
        self.names.partition_point(|name| name.as_str() < extra)
    }
}

impl Rendered {
    /// All labels, the brace and the blank before the value.
    #[inline]
    pub fn closed(&self) -> &[u8] {
        &self.closed
    }

    /// From the `from`-th label on, closed likewise.
    #[inline]
    pub fn closed_from(&self, from: usize) -> &[u8] {
        &self.closed[self.starts[from] as usize..]
    }

    /// The labels between two places, each with its comma; `to` is not the end.
    #[inline]
    pub fn between(&self, from: usize, to: usize) -> &[u8] {
        &self.closed[self.starts[from] as usize..self.starts[to] as usize]
    }

    /// The value of the `index`-th label, whose name is so long, as it stands on the page.
    pub fn escaped_value(&self, index: usize, name: usize) -> &[u8] {
        let (start, end) = (self.starts[index] as usize, self.starts[index + 1] as usize);
        // After `name="` and before `",`.
        &self.closed[start + name + 2..end - 2]
    }

    /// Whether no value looks different on the page.
    pub fn is_plain(&self) -> bool {
        self.is_plain
    }

    /// How many labels there are.
    pub fn count(&self) -> usize {
        self.starts.len() - 1
    }
}

/// `name="value",` with the value escaped as the text format wants it.
pub fn write_label(name: &str, value: &str, out: &mut Vec<u8>) {
    out.extend_from_slice(name.as_bytes());
    out.extend_from_slice(b"=\"");
    write_escaped(value.as_bytes(), out);
    out.extend_from_slice(b"\",");
}

pub fn write_escaped(value: &[u8], out: &mut Vec<u8>) {
    for &byte in value {
        match byte {
            b'\\' => out.extend_from_slice(b"\\\\"),
            b'"' => out.extend_from_slice(b"\\\""),
            b'\n' => out.extend_from_slice(b"\\n"),
            other => out.push(other),
        }
    }
}

/// A name that the text format allows: anything but letters, digits and `_` becomes `_`.
pub fn sanitize(name: &str) -> String {
    name.chars()
        .map(|c| {
            if c.is_ascii_alphanumeric() || c == '_' {
                c
            } else {
                '_'
            }
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn extra_labels_are_spliced_in_where_they_sort() {
        let names = LabelNames::new(["id", "name", "container_label_a", "id"].map(String::from));
        let labels = BTreeMap::from([("id".to_owned(), "/a\"b".to_owned())]);
        let rendered = names.render(&labels);
        assert_eq!(
            rendered.closed(),
            br#"container_label_a="",id="/a\"b",name=""} "#
        );
        let place = names.place("device");
        assert_eq!(rendered.between(0, place), br#"container_label_a="","#);
        assert_eq!(rendered.closed_from(place), br#"id="/a\"b",name=""} "#);
        assert_eq!(rendered.count(), 3);
        assert_eq!(LabelNames::default().render(&labels).closed(), b"} ");
        assert_eq!(names.place("scope"), 3);
        assert_eq!(sanitize("io.kubernetes.pod/name"), "io_kubernetes_pod_name");
    }
}
