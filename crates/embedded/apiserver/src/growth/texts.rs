//! Documents as they come: read, decoded, patched.

use std::fmt::Write;

use serde_json::{Value, json};

use super::measure::check;
use super::{Elements, many, resource};
use crate::codec::decode::decode_as_given;
use crate::codec::document::Document;
use crate::codec::json::Node;
use crate::codec::{protobuf, yaml};
use crate::kinds;
use crate::patch::{self, PatchKind};
use crate::schema::{Shape, Types};
use crate::selector::{parse_fields, parse_labels};

/// The inside of a list or map.
fn joined(count: usize, one: impl Fn(&mut String, usize)) -> String {
    let mut out = String::new();
    for index in 0..count {
        if index > 0 {
            out.push(',');
        }
        one(&mut out, index);
    }
    out
}

type Make = (&'static str, fn(usize) -> String);

/// A ConfigMap of every sort that is too much.
const BODIES: [Make; 12] = [
    ("unknown fields", |count| {
        format!(
            "{{{}}}",
            joined(count, |out, index| {
                let _ = write!(out, "\"x{index}\":1");
            })
        )
    }),
    ("one unknown field", |count| {
        format!("{{{}}}", joined(count, |out, _| out.push_str("\"x\":1")))
    }),
    ("one known field", |count| {
        format!(
            "{{{}}}",
            joined(count, |out, _| out.push_str("\"immutable\":true"))
        )
    }),
    ("entries", |count| {
        format!(
            "{{\"data\":{{{}}}}}",
            joined(count, |out, index| {
                let _ = write!(out, "\"k{index}\":\"v\"");
            })
        )
    }),
    ("one entry", |count| {
        format!(
            "{{\"data\":{{{}}}}}",
            joined(count, |out, _| out.push_str("\"k\":\"v\""))
        )
    }),
    ("a list", |count| {
        let name = |out: &mut String, index: usize| {
            let _ = write!(out, "\"f{index}\"");
        };
        format!(
            "{{\"metadata\":{{\"finalizers\":[{}]}}}}",
            joined(count, name)
        )
    }),
    ("deep things", |count| {
        let deep = format!("{}{}", "[".repeat(90), "]".repeat(90));
        format!(
            "{{\"x\":[{}]}}",
            joined(count / 50, |out, _| out.push_str(&deep))
        )
    }),
    ("a long text", |count| {
        format!("{{\"data\":{{\"k\":\"{}\"}}}}", "é".repeat(count * 20))
    }),
    ("escapes", |count| {
        format!(
            "{{\"data\":{{\"k\":\"{}\"}}}}",
            "\\u00e9\\n\\\"".repeat(count)
        )
    }),
    ("numbers", |count| {
        format!(
            "{{\"x\":[{}]}}",
            joined(count, |out, index| {
                let _ = write!(out, "-{index}.5e3");
            })
        )
    }),
    ("a long number", |count| {
        format!("{{\"x\":{}}}", "9".repeat(count * 20))
    }),
    ("many below a long name", |count| {
        let fields = joined(count, |out, index| {
            let _ = write!(out, "\"x{index}\":1");
        });
        format!(
            "{{\"{}\":{{{fields}}},\"metadata\":{{{fields}}}}}",
            "n".repeat(count * 10)
        )
    }),
];

#[test]
fn json_is_read_and_decoded() {
    let id = resource("", "configmaps").type_id().unwrap();
    for (name, make) in BODIES {
        check(&format!("read {name}"), 4000, make, |text| {
            let document = Document::parse(text.as_bytes());
            document.map(|document| document.complaints.len())
        });
        check(&format!("decode {name}"), 4000, make, |text| {
            let node = Node::parse(text).unwrap();
            decode_as_given(Types::builtin(), id, &node).map(|decoded| decoded.objections)
        });
    }
}

#[test]
fn yaml_is_read() {
    let block = |count: usize, name: fn(usize) -> String| -> String {
        let line = |index| format!("  {}: [a, {{b: c}}]\n", name(index));
        format!("data:\n{}", (0..count).map(line).collect::<String>())
    };
    for (name, make) in BODIES {
        check(name, 1000, make, |text| {
            yaml::parse(text).map(|parsed| parsed.repeated)
        });
    }
    let different = |count| block(count, |index| format!("k{index}"));
    check("keys", 1000, different, |text: &String| {
        yaml::parse(text).map(|parsed| parsed.repeated)
    });
    let alike = |count| block(count, |_| "k".to_owned());
    check("one key", 1000, alike, |text: &String| {
        yaml::parse(text).map(|parsed| parsed.repeated)
    });
}

/// A field with bytes.
fn field(number: u64, inner: &[u8]) -> Vec<u8> {
    let mut out = plimsoll_golang::protowire::Message::default();
    out.bytes(number, inner);
    out.0
}

#[test]
fn protobuf_is_read() {
    let body = |kind: &str, raw: &[u8]| {
        let meta = [field(1, b"v1"), field(2, kind.as_bytes())].concat();
        [b"k8s\0".to_vec(), field(1, &meta), field(2, raw)].concat()
    };
    let map = |elements: Elements| {
        move |count: usize| {
            let entry = |index: usize| {
                let key = format!("k{}", elements.number(index));
                field(2, &[field(1, key.as_bytes()), field(2, b"v")].concat())
            };
            body(
                "ConfigMap",
                &(0..count).flat_map(entry).collect::<Vec<u8>>(),
            )
        }
    };
    check("different", 4000, map(Elements::Different), |body| {
        protobuf::parse(body).is_ok()
    });
    check("alike", 4000, map(Elements::Alike), |body| {
        protobuf::parse(body).is_ok()
    });
    let scalars = |count: usize| {
        let one = [field(2, b"x"), field(11, &field(1, b"k"))].concat();
        body("ConfigMap", &field(1, &one.repeat(count)))
    };
    check("the same again", 4000, scalars, |body| {
        protobuf::parse(body).is_ok()
    });
}

#[test]
fn selectors_are_read_and_compared() {
    let requirements = |count: usize| -> String {
        joined(count, |out, index| {
            let _ = write!(out, "k{index} in (a,b)");
        })
    };
    check("requirements", 2000, requirements, |text| {
        parse_labels(text).unwrap().len()
    });
    let values = |count: usize| -> String {
        format!(
            "k in ({})",
            joined(count, |out, index| {
                let _ = write!(out, "v{index}");
            })
        )
    };
    check("values", 2000, values, |text| {
        let parsed = parse_labels(text).unwrap();
        parsed[0].matches(|_| Some("x"))
    });
    let terms = |count: usize| -> String {
        joined(count, |out, index| {
            let _ = write!(out, "metadata.name!=v{index}");
        })
    };
    check("terms", 2000, terms, |text| {
        parse_fields(text).unwrap().len()
    });
}

#[test]
fn patches_are_applied() {
    let pods = resource("", "pods");
    let shape = Shape::Struct(pods.type_id().unwrap());
    let applied = |kind, pair: &(Value, String)| {
        let (current, body) = pair;
        patch::apply(
            kind,
            Types::builtin(),
            &shape,
            current,
            body.as_bytes(),
            true,
        )
        .map(|patched| patched.object)
        .map_err(|refused| refused.code)
    };
    let containers = |elements: Elements, count| {
        many(
            count,
            move |index| json!({"name": format!("c{}", elements.number(index)), "image": "a"}),
        )
    };
    let reversed = |list: Value| {
        let Value::Array(mut list) = list else {
            unreachable!()
        };
        list.reverse();
        Value::Array(list)
    };
    for elements in [Elements::Different, Elements::Alike] {
        let pair = |count, patch: Value| {
            (
                json!({"spec": {"containers": containers(elements, count)}}),
                patch.to_string(),
            )
        };
        let merge = |count| {
            pair(
                count,
                json!({"spec": {"containers": reversed(containers(elements, count))}}),
            )
        };
        check("merge", 2000, merge, |pair| applied(PatchKind::Merge, pair));
        check("strategic", 2000, merge, |pair| {
            applied(PatchKind::Strategic, pair)
        });
        let deleting = |count| {
            let delete = many(
                count,
                |index| json!({"$patch": "delete", "name": format!("c{}", elements.number(index))}),
            );
            pair(count, json!({"spec": {"containers": delete}}))
        };
        check("strategic deletes", 2000, deleting, |pair| {
            applied(PatchKind::Strategic, pair)
        });
        let ordered = |count| {
            let order = many(
                count,
                |index| json!({"name": format!("c{}", elements.number(index))}),
            );
            pair(
                count,
                json!({"spec": {"$setElementOrder/containers": reversed(order.clone()), "containers": reversed(order)}}),
            )
        };
        check("strategic order", 2000, ordered, |pair| {
            applied(PatchKind::Strategic, pair)
        });
        let finalizers = |count| many(count, |index| json!(format!("f{}", elements.number(index))));
        let texts = |count| {
            (
                json!({"metadata": {"finalizers": finalizers(count)}}),
                json!({"metadata": {"finalizers": reversed(finalizers(count))}}).to_string(),
            )
        };
        check("strategic texts", 2000, texts, |pair| {
            applied(PatchKind::Strategic, pair)
        });
        let without = |count| {
            (json!({"metadata": {"finalizers": finalizers(count)}}), json!({"metadata": {"$deleteFromPrimitiveList/finalizers": reversed(finalizers(count))}}).to_string())
        };
        check("strategic deletes of texts", 2000, without, |pair| {
            applied(PatchKind::Strategic, pair)
        });
        let retained = |count| {
            let keys = many(count, |index| json!(format!("k{}", elements.number(index))));
            let fields: Value = (0..count)
                .map(|index| (format!("k{index}"), json!(1)))
                .collect();
            (
                json!({"spec": {"strategy": fields}}),
                json!({"spec": {"strategy": {"$retainKeys": keys}}}).to_string(),
            )
        };
        check("retained keys", 2000, retained, |pair| {
            applied(PatchKind::Strategic, pair)
        });
    }
    let operations = |op: fn(usize) -> Value| {
        move |count: usize| {
            let current =
                json!({"metadata": {"annotations": {"a": "b"}}, "list": vec![0; count.min(3000)]});
            (current, many(count.min(10_000), op).to_string())
        }
    };
    for (name, op) in [
        (
            "adds",
            (|index| json!({"op": "add", "path": format!("/metadata/annotations/a{index}"), "value": "x"}))
                as fn(usize) -> Value,
        ),
        (
            "tests",
            |_| json!({"op": "test", "path": "/metadata/annotations/a", "value": "b"}),
        ),
        (
            "copies",
            |_| json!({"op": "copy", "from": "/metadata/annotations/a", "path": "/metadata/annotations/b"}),
        ),
        (
            "replaces",
            |_| json!({"op": "replace", "path": "/metadata/annotations", "value": {"a": "c"}}),
        ),
    ] {
        check(name, 2000, operations(op), |pair| {
            applied(PatchKind::Json, pair)
        });
    }
    let whole = |count: usize| {
        let entries: Value = (0..count)
            .map(|index| (format!("k{index}"), json!("v")))
            .collect();
        let test = json!({"op": "test", "path": "", "value": {"x": 1}});
        (
            json!({"data": entries}),
            many(100, |_| test.clone()).to_string(),
        )
    };
    check("tests of all", 2000, whole, |pair| {
        applied(PatchKind::Json, pair)
    });
}

/// What goes wrong a thousand times below a long name is told in few words.
#[test]
fn refusals_stay_short() {
    let object = |count: usize| {
        let labels: Value = (0..count)
            .map(|index| (format!("-{index}"), json!("-")))
            .collect();
        json!({"metadata": {"name": "n".repeat(count), "labels": labels}, "data": {"k".repeat(count): "v"}})
    };
    let kind = kinds::of("", "v1", "ConfigMap");
    let subject = crate::status::Subject {
        group: "",
        kind: "ConfigMap",
    };
    let refused = |object: &Value| {
        crate::status::StatusError::invalid(subject, "x", &kind.validate_create(object))
    };
    check("refusals", 4000, object, refused);
    let told = serde_json::to_string(&refused(&object(100_000)).to_value()).unwrap();
    assert!(told.len() < 8 << 20, "{}", told.len());
}
