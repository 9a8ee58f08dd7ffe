//! Lists and watches as tables.

use std::sync::Arc;

use bytes::Bytes;
use serde_json::{Value, json};

use crate::rest::Call;
use crate::store::Stored;

/// Makes the rows of a watch.
#[derive(Debug, Clone)]
pub struct RowMaker;

impl RowMaker {
    pub fn event(&self, _object: &Bytes) -> Value {
        json!({})
    }
}

impl Call<'_> {
    pub fn table(&self, _items: &[Arc<Stored>], _meta: Value) -> Value {
        json!({})
    }

    pub fn table_of_one(&self, _object: &Bytes) -> Value {
        json!({})
    }

    pub fn row_maker(&self) -> RowMaker {
        RowMaker
    }
}
