//! Limits that hold while a body is decoded. A deserializer wrapper sees every element, entry and text of a body, whatever its
//! format and type, and charges the memory that each takes once it is built. Decoding stops at the element or byte that
//! exceeds the limit, so a small body cannot build a large value.
//!
//! **Invariant:** each element, entry and text costs something, so the limit also bounds their number.

use crate::element::decode_apart;
use crate::format::Positioned;
use serde::de::{
    self, DeserializeSeed, Deserializer, EnumAccess, MapAccess, SeqAccess, VariantAccess, Visitor,
};
use std::cell::Cell;
use std::fmt;

/// The name of the tuple struct as which a list with a maximum length is decoded: see [`DecodeBudget`].
pub(crate) const LIST: &str = "$towline::List";
/// The name of the newtype as which an element of a batch is decoded: see [`crate::element::Element`].
pub(crate) const ELEMENT: &str = "$towline::Element";

/// Memory is reserved in steps of this many bytes.
const STEP: usize = 16 << 10;
/// What an element, an entry or a text costs besides its size: separators when it becomes text, or the header of an
/// allocation.
const NODE: usize = 8;
/// Entries for which the first node of a `BTreeMap` has room.
const MAP_NODE_ENTRIES: usize = 11;
/// Entries of a `BTreeMap` node that is full and was split.
const MAP_NODE_SPLIT: usize = 5;

/// How much memory a decoded body may take.
///
/// It also carries the maximum length of a list to the place where elements are counted: the list is decoded as a tuple struct
/// with the name `LIST` and this length.
pub struct DecodeBudget<'a> {
    bytes_max: usize,
    /// Reserves this many bytes in all. Returns `false` if there is no memory left.
    reserve: &'a dyn Fn(usize) -> bool,
    used: Cell<usize>,
    reserved: Cell<usize>,
    refused: Cell<Option<BudgetError>>,
}

/// Why decoding stopped, although the body may be well-formed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum BudgetError {
    ListTooLong { max: usize },
    TooLarge { max: usize },
    NoMemory,
}

impl<'a> DecodeBudget<'a> {
    pub fn new(bytes_max: usize, reserve: &'a dyn Fn(usize) -> bool) -> DecodeBudget<'a> {
        DecodeBudget {
            bytes_max,
            reserve,
            used: Cell::new(0),
            reserved: Cell::new(0),
            refused: Cell::new(None),
        }
    }

    /// The memory that the decoded value takes.
    #[must_use]
    pub fn used(&self) -> usize {
        self.used.get()
    }

    pub(crate) fn refused(&self) -> Option<BudgetError> {
        self.refused.get()
    }

    /// Before the same body is decoded again.
    pub(crate) fn restart(&self) {
        self.used.set(0);
    }

    #[inline]
    pub(crate) fn charge<E: de::Error>(&self, bytes: usize) -> Result<(), E> {
        let used = self.used.get().saturating_add(bytes);
        self.used.set(used);
        if used <= self.reserved.get() { Ok(()) } else { self.reserve(used) }
    }

    #[cold]
    fn reserve<E: de::Error>(&self, used: usize) -> Result<(), E> {
        if used > self.bytes_max {
            return Err(self.refuse(BudgetError::TooLarge { max: self.bytes_max }));
        }
        let reserved = used.saturating_add(STEP).min(self.bytes_max);
        if !(self.reserve)(reserved) {
            return Err(self.refuse(BudgetError::NoMemory));
        }
        self.reserved.set(reserved);
        Ok(())
    }

    #[cold]
    fn refuse<E: de::Error>(&self, error: BudgetError) -> E {
        self.refused.set(Some(error));
        E::custom("the limit of the body is reached")
    }
}

impl Default for DecodeBudget<'_> {
    /// Without a limit: for answers of a server that the client chose.
    fn default() -> Self {
        DecodeBudget::new(usize::MAX, &|_| true)
    }
}

impl fmt::Debug for DecodeBudget<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DecodeBudget").field("bytes_max", &self.bytes_max).field("used", &self.used).finish()
    }
}

/// How the elements of a batch are decoded.
#[derive(Clone, Copy)]
pub(crate) enum Elements<'b> {
    /// With the reader of the body. An element that cannot be read ends the decoding.
    Together,
    /// Each with a reader of its own.
    Apart(Positioned<'b>),
    Skipped,
}

/// One pass over a body.
pub(crate) struct Pass<'b> {
    pub(crate) budget: &'b DecodeBudget<'b>,
    pub(crate) elements: Elements<'b>,
    has_elements: Cell<bool>,
}

impl<'b> Pass<'b> {
    pub(crate) fn new(budget: &'b DecodeBudget<'b>, elements: Elements<'b>) -> Pass<'b> {
        Pass { budget, elements, has_elements: Cell::new(false) }
    }

    /// Whether the pass met an element of a batch.
    pub(crate) fn has_elements(&self) -> bool {
        self.has_elements.get()
    }
}

/// Wraps a deserializer, a visitor or a seed, and everything below it.
pub(crate) struct Counted<'b, X> {
    inner: X,
    pass: &'b Pass<'b>,
    /// For the next list.
    list_max: usize,
}

impl<'b, X> Counted<'b, X> {
    #[inline]
    pub(crate) fn new(inner: X, pass: &'b Pass<'b>) -> Counted<'b, X> {
        Counted { inner, pass, list_max: usize::MAX }
    }

    pub(crate) fn pass(&self) -> &'b Pass<'b> {
        self.pass
    }
}

/// Calls of a deserializer that pass the visitor on: `plain` ones read a value that needs no memory of its own.
macro_rules! forward {
    (plain: $($plain:ident)*; counted: $($counted:ident)*;) => {
        $(#[inline]
        fn $plain<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, D::Error> {
            self.inner.$plain(visitor)
        })*
        $(#[inline]
        fn $counted<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, D::Error> {
            self.inner.$counted(Counted::new(visitor, self.pass))
        })*
    };
}

impl<'de, D: Deserializer<'de>> Deserializer<'de> for Counted<'_, D> {
    type Error = D::Error;

    forward! {
        plain: deserialize_bool deserialize_i8 deserialize_i16 deserialize_i32 deserialize_i64 deserialize_i128 deserialize_u8
            deserialize_u16 deserialize_u32 deserialize_u64 deserialize_u128 deserialize_f32 deserialize_f64 deserialize_char
            deserialize_identifier deserialize_ignored_any;
        counted: deserialize_any deserialize_str deserialize_string deserialize_bytes deserialize_byte_buf deserialize_option
            deserialize_unit deserialize_seq deserialize_map;
    }

    #[inline]
    fn deserialize_unit_struct<V: Visitor<'de>>(
        self,
        name: &'static str,
        visitor: V,
    ) -> Result<V::Value, D::Error> {
        self.inner.deserialize_unit_struct(name, Counted::new(visitor, self.pass))
    }

    #[inline]
    fn deserialize_newtype_struct<V: Visitor<'de>>(
        self,
        name: &'static str,
        visitor: V,
    ) -> Result<V::Value, D::Error> {
        let visitor = Counted::new(visitor, self.pass);
        if name == ELEMENT {
            self.pass.has_elements.set(true);
            if !matches!(self.pass.elements, Elements::Together) {
                return decode_apart(self.inner, visitor);
            }
        }
        self.inner.deserialize_newtype_struct(name, visitor)
    }

    #[inline]
    fn deserialize_tuple<V: Visitor<'de>>(self, len: usize, visitor: V) -> Result<V::Value, D::Error> {
        self.inner.deserialize_tuple(len, Counted::new(visitor, self.pass))
    }

    #[inline]
    fn deserialize_tuple_struct<V: Visitor<'de>>(
        self,
        name: &'static str,
        len: usize,
        visitor: V,
    ) -> Result<V::Value, D::Error> {
        let list_max = if name == LIST { len } else { usize::MAX };
        let visitor = Counted { inner: visitor, pass: self.pass, list_max };
        self.inner.deserialize_tuple_struct(name, len, visitor)
    }

    #[inline]
    fn deserialize_struct<V: Visitor<'de>>(
        self,
        name: &'static str,
        fields: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, D::Error> {
        self.inner.deserialize_struct(name, fields, Counted::new(visitor, self.pass))
    }

    #[inline]
    fn deserialize_enum<V: Visitor<'de>>(
        self,
        name: &'static str,
        variants: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, D::Error> {
        self.inner.deserialize_enum(name, variants, Counted::new(visitor, self.pass))
    }

    #[inline]
    fn is_human_readable(&self) -> bool {
        self.inner.is_human_readable()
    }
}

/// Values that a visitor takes: `plain` ones as they are, `sized` ones after their bytes are charged.
macro_rules! visit {
    (plain: $($plain:ident($plain_type:ty))*; sized: $($sized:ident($sized_type:ty))*;) => {
        $(#[inline]
        fn $plain<E: de::Error>(self, value: $plain_type) -> Result<V::Value, E> {
            self.inner.$plain(value)
        })*
        $(#[inline]
        fn $sized<E: de::Error>(self, value: $sized_type) -> Result<V::Value, E> {
            self.pass.budget.charge(value.len() + NODE)?;
            self.inner.$sized(value)
        })*
    };
}

impl<'de, V: Visitor<'de>> Visitor<'de> for Counted<'_, V> {
    type Value = V::Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.inner.expecting(f)
    }

    visit! {
        plain: visit_bool(bool) visit_i8(i8) visit_i16(i16) visit_i32(i32) visit_i64(i64) visit_i128(i128) visit_u8(u8)
            visit_u16(u16) visit_u32(u32) visit_u64(u64) visit_u128(u128) visit_f32(f32) visit_f64(f64) visit_char(char);
        sized: visit_str(&str) visit_borrowed_str(&'de str) visit_string(String) visit_bytes(&[u8])
            visit_borrowed_bytes(&'de [u8]) visit_byte_buf(Vec<u8>);
    }

    #[inline]
    fn visit_none<E: de::Error>(self) -> Result<V::Value, E> {
        self.inner.visit_none()
    }

    #[inline]
    fn visit_unit<E: de::Error>(self) -> Result<V::Value, E> {
        self.inner.visit_unit()
    }

    #[inline]
    fn visit_some<D: Deserializer<'de>>(self, value: D) -> Result<V::Value, D::Error> {
        self.inner.visit_some(Counted::new(value, self.pass))
    }

    #[inline]
    fn visit_newtype_struct<D: Deserializer<'de>>(self, value: D) -> Result<V::Value, D::Error> {
        self.inner.visit_newtype_struct(Counted::new(value, self.pass))
    }

    #[inline]
    fn visit_seq<A: SeqAccess<'de>>(self, list: A) -> Result<V::Value, A::Error> {
        self.inner.visit_seq(List { inner: list, pass: self.pass, left: self.list_max, max: self.list_max })
    }

    #[inline]
    fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<V::Value, A::Error> {
        self.inner.visit_map(Map { inner: map, pass: self.pass, entries: 0, key_bytes: 0 })
    }

    #[inline]
    fn visit_enum<A: EnumAccess<'de>>(self, value: A) -> Result<V::Value, A::Error> {
        self.inner.visit_enum(Counted::new(value, self.pass))
    }
}

impl<'de, S: DeserializeSeed<'de>> DeserializeSeed<'de> for Counted<'_, S> {
    type Value = S::Value;

    #[inline]
    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<S::Value, D::Error> {
        self.inner.deserialize(Counted::new(deserializer, self.pass))
    }
}

struct List<'b, A> {
    inner: A,
    pass: &'b Pass<'b>,
    left: usize,
    max: usize,
}

impl<'de, A: SeqAccess<'de>> SeqAccess<'de> for List<'_, A> {
    type Error = A::Error;

    #[inline]
    fn next_element_seed<S: DeserializeSeed<'de>>(&mut self, seed: S) -> Result<Option<S::Value>, A::Error> {
        let Some(element) = self.inner.next_element_seed(Counted::new(seed, self.pass))? else {
            return Ok(None);
        };
        if self.left == 0 {
            return Err(self.pass.budget.refuse(BudgetError::ListTooLong { max: self.max }));
        }
        self.left -= 1;
        self.pass.budget.charge(size_of::<S::Value>() + NODE)?;
        Ok(Some(element))
    }

    #[inline]
    fn size_hint(&self) -> Option<usize> {
        self.inner.size_hint()
    }
}

struct Map<'b, A> {
    inner: A,
    pass: &'b Pass<'b>,
    entries: usize,
    key_bytes: usize,
}

impl<'de, A: MapAccess<'de>> MapAccess<'de> for Map<'_, A> {
    type Error = A::Error;

    #[inline]
    fn next_key_seed<S: DeserializeSeed<'de>>(&mut self, seed: S) -> Result<Option<S::Value>, A::Error> {
        self.key_bytes = size_of::<S::Value>();
        self.inner.next_key_seed(Counted::new(seed, self.pass))
    }

    #[inline]
    fn next_value_seed<S: DeserializeSeed<'de>>(&mut self, seed: S) -> Result<S::Value, A::Error> {
        let value = self.inner.next_value_seed(Counted::new(seed, self.pass))?;
        // The key of a struct is an enum without data. Its values are part of the struct, which is charged as a whole.
        let entry = if self.key_bytes <= 1 { 0 } else { self.key_bytes + size_of::<S::Value>() };
        let room_for = match self.entries {
            0 => MAP_NODE_ENTRIES,
            1..=MAP_NODE_SPLIT => 0,
            _ => 2,
        };
        self.entries += 1;
        self.pass.budget.charge(entry * room_for + NODE)?;
        Ok(value)
    }

    #[inline]
    fn size_hint(&self) -> Option<usize> {
        self.inner.size_hint()
    }
}

impl<'de, 'b, A: EnumAccess<'de>> EnumAccess<'de> for Counted<'b, A> {
    type Error = A::Error;
    type Variant = Counted<'b, A::Variant>;

    fn variant_seed<S: DeserializeSeed<'de>>(self, seed: S) -> Result<(S::Value, Self::Variant), A::Error> {
        let (value, variant) = self.inner.variant_seed(Counted::new(seed, self.pass))?;
        Ok((value, Counted::new(variant, self.pass)))
    }
}

impl<'de, A: VariantAccess<'de>> VariantAccess<'de> for Counted<'_, A> {
    type Error = A::Error;

    fn unit_variant(self) -> Result<(), A::Error> {
        self.inner.unit_variant()
    }

    fn newtype_variant_seed<S: DeserializeSeed<'de>>(self, seed: S) -> Result<S::Value, A::Error> {
        self.inner.newtype_variant_seed(Counted::new(seed, self.pass))
    }

    fn tuple_variant<V: Visitor<'de>>(self, len: usize, visitor: V) -> Result<V::Value, A::Error> {
        self.inner.tuple_variant(len, Counted::new(visitor, self.pass))
    }

    fn struct_variant<V: Visitor<'de>>(
        self,
        fields: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, A::Error> {
        self.inner.struct_variant(fields, Counted::new(visitor, self.pass))
    }
}
