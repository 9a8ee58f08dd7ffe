//! Messages as bytes, independent of the structs' own encoding where the tag numbers are the point.

use super::*;

const ID: &str = "0a1b2c3d4e5f60718293a4b5c6d7e8f90a1b2c3d4e5f60718293a4b5c6d7e8f9";

/// One length-delimited field.
fn field(tag: u8, bytes: &[u8]) -> Vec<u8> {
    let mut out = vec![tag << 3 | 2, u8::try_from(bytes.len()).unwrap()];
    out.extend_from_slice(bytes);
    out
}

fn envelope(topic: &str, event: Vec<u8>) -> wire::Envelope {
    wire::Envelope {
        namespace: "k8s.io".to_owned(),
        topic: topic.to_owned(),
        event: Some(wire::Any {
            type_url: String::new(),
            value: event,
        }),
    }
}

#[test]
fn a_container_message_by_its_tags() {
    let label = [field(1, b"k"), field(2, b"v")].concat();
    let bytes = [
        field(1, b"id"),
        field(2, &label),
        field(3, b"image"),
        // Tags 4, 6, 7 and 9 are not used and must be skipped.
        field(4, &field(1, b"io.containerd.runc.v2")),
        field(5, &[field(1, b"type"), field(2, b"{}")].concat()),
        field(6, b"overlayfs"),
        field(8, &[0x08, 0x05, 0x10, 0x07]),
        field(9, &[0x08, 0x06]),
    ]
    .concat();
    let container = wire::Container::decode(bytes.as_slice()).unwrap();
    assert_eq!(container.id, "id");
    assert_eq!(container.labels["k"], "v");
    assert_eq!(container.image, "image");
    assert_eq!(container.spec.unwrap().value, b"{}");
    assert_eq!(container.created_at.unwrap().nanos(), 5_000_000_007);
}

#[test]
fn events_of_the_first_process_only() {
    let exit = |id: &str| {
        let mut bytes = [field(1, ID.as_bytes()), field(2, id.as_bytes())].concat();
        // pid 300, exit status 137
        bytes.extend([0x18, 0xac, 0x02, 0x20, 0x89, 0x01]);
        envelope(TASK_EXIT, bytes)
    };
    assert_eq!(
        event(&exit(ID)).unwrap(),
        Some(Event::Exited(ID.to_owned(), 137))
    );
    assert_eq!(event(&exit("exec-1")).unwrap(), None);
    let start = envelope(TASK_START, field(1, ID.as_bytes()));
    assert_eq!(event(&start).unwrap(), Some(Event::Changed(ID.to_owned())));
    assert_eq!(event(&envelope("/images/create", vec![])).unwrap(), None);
    let garbage = envelope(TASK_EXIT, vec![0xff; 9]);
    assert!(matches!(event(&garbage), Err(RuntimeError::Malformed(_))));
}

#[test]
fn a_listed_task_has_its_name_in_another_field() {
    let listed = wire::Process {
        id: ID.to_owned(),
        ..Default::default()
    };
    assert_eq!(listed.name(), ID);
    let asked = wire::Process {
        container_id: ID.to_owned(),
        ..Default::default()
    };
    assert_eq!(asked.name(), ID);
}
