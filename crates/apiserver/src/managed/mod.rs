//! Who owns which field of an object, and server-side apply.

pub mod fieldset;
pub mod path;
