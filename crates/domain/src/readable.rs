//! Fields that came later, for `#[serde(default, with = "crate::readable")]`: there in forms that name their fields, and
//! left out of those that go by position, which must stay what they are. Who stores such a form keeps the field beside it.

use serde::{Deserialize, Deserializer, Serialize, Serializer};

pub(crate) fn serialize<T: Serialize, S: Serializer>(value: &T, to: S) -> Result<S::Ok, S::Error> {
    if to.is_human_readable() { value.serialize(to) } else { to.serialize_unit() }
}

pub(crate) fn deserialize<'de, T: Deserialize<'de> + Default, D: Deserializer<'de>>(
    from: D,
) -> Result<T, D::Error> {
    if from.is_human_readable() {
        T::deserialize(from)
    } else {
        <()>::deserialize(from).map(|()| T::default())
    }
}
