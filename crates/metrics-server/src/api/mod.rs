//! `metrics.k8s.io` and everything else that the server answers.

mod about;
mod access;
mod browsers;
mod counted;
mod discovery;
mod figures;
pub mod freshness;
mod json;
mod list;
mod objects;
mod openapi;
mod options;
mod pages;
mod protobuf;
mod route;
mod row;
mod sheet;
mod surface;
mod version;

pub use about::VERSION;
pub use browsers::Browsers;
pub use figures::duration;
pub use surface::{Rooms, Surface};
pub use version::Announced;
#[doc(hidden)]
pub async fn bench_list(
    view: crate::view::View,
    accept: &str,
    gzip: bool,
) -> plimsoll_ground::rest::answer::Answer {
    use plimsoll_ground::rest::answer::*;
    let mut h = http::HeaderMap::new();
    h.insert("accept", accept.parse().expect("x"));
    let format = Format::negotiate(
        &h,
        None,
        Offer {
            lists: true,
            protobuf: true,
            only_json: false,
            forms: true,
        },
    )
    .expect("x");
    let form = if format.transform == Transform::Table {
        sheet::Form::Table {
            meta: "meta.k8s.io/v1",
            include: sheet::Include::Metadata,
        }
    } else {
        sheet::Form::Object
    };
    let listing = list::Listing {
        view,
        kind: row::Kind::Pod,
        namespace: None,
        selector: Default::default(),
        freshness: Default::default(),
        next: list::Next::Beginning,
    };
    list::answer(
        listing,
        &format,
        form,
        objects::Common {
            kind: row::Kind::Pod,
            api_version: "metrics.k8s.io/v1beta1",
            asked_at: 1794801119,
        },
        gzip,
    )
    .await
}
