use plimsoll_apimachinery::answer::{Encoding, Format};
use serde_json::Value;

use super::*;
use crate::api::list::single;
use crate::api::row::Kind;
use crate::labels::Labels;
use crate::points::Usage;
use crate::rows::{NodeRow, PodRow};

const AT: i64 = 1_763_237_046_500_000_000;

fn usage(nanocores: u64, memory: u64, at: i64) -> Usage {
    Usage {
        at,
        window: 19_230_000_000,
        nanocores,
        memory,
        swap: None,
    }
}

fn common(kind: Kind) -> Common {
    Common::new(kind, "metrics.k8s.io/v1beta1", 1_763_237_056)
}

fn labels() -> Labels {
    [("kubernetes.io/os", "linux"), ("a", "")]
        .into_iter()
        .collect()
}

fn node(labels: &Labels) -> Row<'_> {
    Row::Node(NodeRow {
        name: "node-a",
        labels,
        usage: usage(1_597_940_760, 3_360_292 << 10, AT),
    })
}

fn text(row: &Row<'_>, kind: Kind, form: Form) -> String {
    let bytes = single(row, &Format::JSON, form, common(kind));
    String::from_utf8(bytes.to_vec()).unwrap()
}

#[test]
fn a_node_as_json() {
    let labels = labels();
    assert_eq!(
        text(&node(&labels), Kind::Node, Form::Object),
        "{\"kind\":\"NodeMetrics\",\"apiVersion\":\"metrics.k8s.io/v1beta1\",\"metadata\":{\"name\":\"node-a\",\
         \"creationTimestamp\":\"2025-11-15T20:04:16Z\",\"labels\":{\"a\":\"\",\"kubernetes.io/os\":\"linux\"}},\
         \"timestamp\":\"2025-11-15T20:04:06Z\",\"window\":\"19.23s\",\"usage\":{\"cpu\":\"1597940760n\",\
         \"memory\":\"3360292Ki\"}}\n"
    );
}

#[test]
fn a_pod_is_as_old_as_its_oldest_container() {
    let labels = Labels::default();
    let containers = [
        ("a", usage(0, 212 << 10, AT)),
        ("b", usage(1_000_000, 1_500_001, AT - 10_000_000_000)),
    ];
    let pod = Row::Pod(PodRow {
        namespace: "ns",
        name: "p",
        labels: &labels,
        containers: &containers,
    });
    assert_eq!(
        text(&pod, Kind::Pod, Form::Object),
        "{\"kind\":\"PodMetrics\",\"apiVersion\":\"metrics.k8s.io/v1beta1\",\"metadata\":{\"name\":\"p\",\
         \"namespace\":\"ns\",\"creationTimestamp\":\"2025-11-15T20:04:16Z\"},\"timestamp\":\"2025-11-15T20:03:56Z\",\
         \"window\":\"19.23s\",\"containers\":[{\"name\":\"a\",\"usage\":{\"cpu\":\"0\",\"memory\":\"212Ki\"}},\
         {\"name\":\"b\",\"usage\":{\"cpu\":\"1m\",\"memory\":\"1500001\"}}]}\n"
    );
    let form = Form::Table {
        meta: "meta.k8s.io/v1",
        include: Include::Nothing,
    };
    let table: Value = serde_json::from_str(&text(&pod, Kind::Pod, form)).unwrap();
    let expected = serde_json::json!({"cells": ["p", "1m", "1717089", "19.23s"], "object": null});
    assert_eq!(table["rows"][0], expected);
}

#[test]
fn swap_is_one_amount_more() {
    let labels = Labels::default();
    let swapping = |swap| Usage {
        swap,
        ..usage(1_000_000, 1 << 20, AT)
    };
    let containers = [
        ("a", swapping(Some(3 << 20))),
        ("b", swapping(None)),
        ("c", swapping(Some(0))),
    ];
    let pod = Row::Pod(PodRow {
        namespace: "ns",
        name: "p",
        labels: &labels,
        containers: &containers,
    });
    let shown = text(&pod, Kind::Pod, Form::Object);
    assert!(
        shown.ends_with(
            "[{\"name\":\"a\",\"usage\":{\"cpu\":\"1m\",\"memory\":\"1Mi\",\"swap\":\"3Mi\"}},\
             {\"name\":\"b\",\"usage\":{\"cpu\":\"1m\",\"memory\":\"1Mi\"}},\
             {\"name\":\"c\",\"usage\":{\"cpu\":\"1m\",\"memory\":\"1Mi\",\"swap\":\"0\"}}]}\n"
        ),
        "{shown}"
    );
    let form = Form::Table {
        meta: "meta.k8s.io/v1",
        include: Include::Nothing,
    };
    let table: Value = serde_json::from_str(&text(&pod, Kind::Pod, form)).unwrap();
    let names = table["columnDefinitions"].as_array().unwrap().iter();
    let names: Vec<&str> = names
        .map(|column| column["name"].as_str().unwrap())
        .collect();
    assert_eq!(names, ["Name", "cpu", "memory", "swap", "Window"]);
    assert_eq!(
        table["rows"][0]["cells"],
        serde_json::json!(["p", "3m", "3Mi", "3Mi", "19.23s"])
    );
    let format = Format {
        encoding: Encoding::Protobuf,
        ..Format::JSON
    };
    let bytes = single(&pod, &format, Form::Object, common(Kind::Pod));
    let entry = b"\x12\x0d\x0a\x04swap\x12\x05\x0a\x033Mi";
    let found = bytes.windows(entry.len()).filter(|window| *window == entry);
    assert_eq!(found.count(), 1);
}

#[test]
fn a_pod_without_figures() {
    let labels = Labels::default();
    let pod = Row::Pod(PodRow {
        namespace: "ns",
        name: "p",
        labels: &labels,
        containers: &[],
    });
    let shown = text(&pod, Kind::Pod, Form::Object);
    assert!(
        shown.ends_with("\"timestamp\":null,\"window\":\"0s\",\"containers\":[]}\n"),
        "{shown}"
    );
    let format = Format {
        encoding: Encoding::Protobuf,
        ..Format::JSON
    };
    let bytes = single(&pod, &format, Form::Object, common(Kind::Pod));
    // No time at all, and a window of nothing.
    let end = [0x12, 0, 0x1a, 2, 8, 0, 0x1a, 0, 0x22, 0];
    assert_eq!(bytes[bytes.len() - end.len()..], end);
}

/// A table's columns are those of the first row that has figures.
#[test]
fn rows_without_figures_have_fewer_cells_until_there_are_some() {
    let labels = Labels::default();
    let containers = [("a", usage(1_000_000, 1 << 20, AT))];
    let pod = |containers| {
        Row::Pod(PodRow {
            namespace: "ns",
            name: "p",
            labels: &labels,
            containers,
        })
    };
    let form = Form::Table {
        meta: "meta.k8s.io/v1",
        include: Include::Nothing,
    };
    for indented in [false, true] {
        let shown = |rows: &[Row<'_>]| {
            let mut sheet = JsonSheet::new(indented, form, Number::List, common(Kind::Pod));
            rows.iter().for_each(|row| sheet.row(row));
            sheet.end();
            let text = String::from_utf8(sheet.json.take()).unwrap();
            let table: Value = serde_json::from_str(&text).unwrap();
            let columns = table["columnDefinitions"].as_array().unwrap().len();
            let rows = table["rows"].as_array().unwrap().iter();
            let cells: Vec<Value> = rows.map(|row| row["cells"].clone()).collect();
            (columns, serde_json::json!(cells), text)
        };
        let (columns, cells, _) = shown(&[pod(&[])]);
        assert_eq!((columns, cells), (2, serde_json::json!([["p", "0s"]])));
        let (columns, cells, text) = shown(&[pod(&[]), pod(&containers), pod(&[])]);
        let expected = [
            serde_json::json!(["p", "0s"]),
            serde_json::json!(["p", "1m", "1Mi", "19.23s"]),
            serde_json::json!(["p", "0", "0", "0s"]),
        ];
        assert_eq!((columns, cells), (4, serde_json::json!(expected)));
        let (_, _, usual) = shown(&[pod(&containers)]);
        let head = |text: &str| text.split("\"rows\"").next().unwrap().to_owned();
        assert_eq!(head(&text), head(&usual));
    }
}

#[test]
fn a_node_as_protobuf() {
    let labels = labels();
    let format = Format {
        encoding: Encoding::Protobuf,
        ..Format::JSON
    };
    let bytes = single(&node(&labels), &format, Form::Object, common(Kind::Node));
    let mut expected =
        b"k8s\0\x0a\x25\x0a\x16metrics.k8s.io/v1beta1\x12\x0bNodeMetrics\x12".to_vec();
    let metadata =
        b"\x0a\x06node-a\x12\0\x1a\0\x22\0\x2a\0\x32\0\x38\0\x42\x08\x08\xc0\xb9\xe3\xc8\x06\x10\0\
        \x5a\x05\x0a\x01a\x12\0\x5a\x19\x0a\x10kubernetes.io/os\x12\x05linux";
    let figures = b"\x12\x08\x08\xb6\xb9\xe3\xc8\x06\x10\0\x1a\x06\x08\x80\x87\xca\xd1\x47\
        \x22\x14\x0a\x03cpu\x12\x0d\x0a\x0b1597940760n\x22\x15\x0a\x06memory\x12\x0b\x0a\x093360292Ki";
    expected.push(1 + 1 + metadata.len() as u8 + figures.len() as u8);
    // Lengths from 128 on take two bytes.
    let length = expected.pop().unwrap();
    expected.extend([length | 0x80, 1]);
    expected.extend([0x0a, metadata.len() as u8]);
    expected.extend_from_slice(metadata);
    expected.extend_from_slice(figures);
    expected.extend([0x1a, 0, 0x22, 0]);
    assert_eq!(bytes, expected);
}

#[test]
fn lists_without_rows() {
    let empty = |form: Form| {
        let mut sheet = JsonSheet::new(false, form, Number::List, common(Kind::Pod));
        sheet.end();
        String::from_utf8(sheet.json.take()).unwrap()
    };
    assert!(empty(Form::Object).ends_with("\"metadata\":{},\"items\":[]}\n"));
    let meta = "meta.k8s.io/v1";
    assert!(empty(Form::Metadata { meta }).ends_with("\"items\":null}\n"));
    let include = Include::Metadata;
    assert!(
        empty(Form::Table { meta, include })
            .ends_with("\"metadata\":{},\"columnDefinitions\":null,\"rows\":null}\n")
    );
}

#[test]
fn a_list_in_pieces_is_the_same_list() {
    let labels = labels();
    let mut whole = JsonSheet::new(true, Form::Object, Number::List, common(Kind::Node));
    let mut pieces = JsonSheet::new(true, Form::Object, Number::List, common(Kind::Node));
    let mut joined = Vec::new();
    for _ in 0..3 {
        whole.row(&node(&labels));
        pieces.row(&node(&labels));
        joined.extend(pieces.json.take());
    }
    whole.end();
    pieces.end();
    joined.extend(pieces.json.take());
    assert_eq!(whole.json.take(), joined);
    let value: Value = serde_json::from_slice(&joined).unwrap();
    assert_eq!(value["items"].as_array().unwrap().len(), 3);
}

#[test]
fn metadata_come_last_in_v1beta1() {
    let labels = labels();
    let listed = |meta| {
        let form = Form::Metadata { meta };
        let mut sheet = ProtobufSheet::new(form, Number::List, common(Kind::Node));
        sheet.row(&node(&labels));
        let (size, pieces) = sheet.end();
        let bytes = pieces.collect::<Vec<_>>().concat();
        assert_eq!(bytes.len(), size);
        // Behind the head; an encoding and a type, both empty, end it.
        let head = bytes.windows(4).position(|four| four == b"List").unwrap() + 4;
        bytes[head..bytes.len() - 4].to_vec()
    };
    let (v1, v1beta1) = (listed("meta.k8s.io/v1"), listed("meta.k8s.io/v1beta1"));
    let (own, of_first) = ([6, 0x0a, 0, 0x12, 0, 0x1a, 0], [0x0a]);
    let at = v1.windows(7).position(|seven| seven == own).unwrap();
    // The head of the message, then one field 1 and one field 2 the other way round.
    assert_eq!(v1[at - 1], 0x0a);
    let item = &v1[at + own.len() + 1..];
    let expected = [&v1[..at - 1], &of_first, item, &[0x12], &own].concat();
    assert_eq!(v1beta1, expected);
}
