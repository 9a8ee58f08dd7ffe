//! Devices, as expressions that choose among them know them. The API server judges such expressions, and the scheduler
//! computes them, so this is one for both.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::estimate::{Bounds, Inside};
use crate::types::{Object, Type};

/// Bytes of an expression.
pub const LENGTH: usize = 10 * 1024;
/// What it may cost to ask about one device: both what it could cost at most, and what it does.
pub const COST: u64 = 1_000_000;

const DOMAIN: u64 = 63;
const NAME: u64 = 32;
const TEXT: u64 = 64;
/// Attributes and capacities that a device can have together.
const MANY: u64 = 32;

pub fn variables() -> BTreeMap<&'static str, Type> {
    let by_domain = |of: Type| Type::map(Type::String, Type::map(Type::String, of));
    let fields = [
        ("driver", Type::String),
        ("allowMultipleAllocations", Type::Bool),
        ("attributes", by_domain(Type::Dyn)),
        ("capacity", by_domain(Type::Opaque("kubernetes.Quantity"))),
    ];
    let device = Type::Object(Arc::new(Object {
        name: "kubernetes.DRADevice".to_owned(),
        fields: fields.map(|(name, of)| (name.to_owned(), of)).into(),
    }));
    BTreeMap::from([("device", device)])
}

pub fn bounds() -> Bounds {
    let plain = |most| Bounds {
        most,
        ..Bounds::default()
    };
    let map = |key, of, named| Bounds {
        most: MANY,
        least_written: 2,
        inside: Inside::Map {
            key,
            of: Box::new(of),
            named,
        },
    };
    let fields = [
        ("driver", plain(DOMAIN)),
        ("allowMultipleAllocations", plain(1)),
        // An attribute may be asked for by its name, too.
        (
            "attributes",
            map(DOMAIN, map(NAME, plain(TEXT), true), false),
        ),
        ("capacity", map(DOMAIN, map(NAME, plain(0), false), false)),
    ];
    Bounds {
        inside: Inside::Object(fields.map(|(name, of)| (name.to_owned(), of)).into()),
        ..Bounds::default()
    }
}
