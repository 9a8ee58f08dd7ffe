//! Who set which field.

use serde_json::Value;

use super::Call;
use crate::status::Failure;

impl Call<'_> {
    pub fn track_new(&self, _object: &mut Value) -> Result<(), Failure> {
        Ok(())
    }

    pub fn track_change(&self, _old: &Value, _new: &mut Value) -> Result<(), Failure> {
        Ok(())
    }
}
