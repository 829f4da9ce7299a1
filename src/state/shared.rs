//! Lists and maps whose values are shared between copies: a copy costs a pointer per value, and only the values that change afterwards are
//! copied themselves.

use std::collections::{BTreeMap, btree_map};
use std::ops::{Index, IndexMut};
use std::slice;
use std::sync::Arc;

type ArcIter<'a, T> = std::iter::Map<slice::Iter<'a, Arc<T>>, fn(&'a Arc<T>) -> &'a T>;
type ArcValues<'a, T> = std::iter::Map<btree_map::Values<'a, u32, Arc<T>>, fn(&'a Arc<T>) -> &'a T>;

/// A list of shared values.
#[derive(Debug, Clone, PartialEq)]
pub struct SharedList<T>(Vec<Arc<T>>);

impl<T> Default for SharedList<T> {
    fn default() -> Self {
        SharedList(Vec::new())
    }
}

impl<T> SharedList<T> {
    pub fn iter(&self) -> ArcIter<'_, T> {
        self.0.iter().map(Arc::as_ref)
    }

    pub fn get(&self, at: usize) -> Option<&T> {
        self.0.get(at).map(Arc::as_ref)
    }

    pub fn len(&self) -> usize {
        self.0.len()
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The first value for which this is so, shared.
    pub(crate) fn find_shared(&self, is_meant: impl Fn(&T) -> bool) -> Option<Arc<T>> {
        self.0.iter().find(|value| is_meant(value)).map(Arc::clone)
    }

    pub fn chunks(&self, len: usize) -> slice::Chunks<'_, Arc<T>> {
        self.0.chunks(len)
    }
}

impl<T: Clone> SharedList<T> {
    pub(crate) fn get_mut(&mut self, at: usize) -> Option<&mut T> {
        self.0.get_mut(at).map(Arc::make_mut)
    }

    /// Copies every value that another list shares.
    pub(crate) fn iter_mut(&mut self) -> impl Iterator<Item = &mut T> {
        self.0.iter_mut().map(Arc::make_mut)
    }

    /// The values for which this is so, to be changed.
    pub(crate) fn iter_mut_where(&mut self, is_meant: impl Fn(&T) -> bool) -> impl Iterator<Item = &mut T> {
        self.0.iter_mut().filter(move |value| is_meant(value)).map(Arc::make_mut)
    }
}

impl<T, A: Into<Arc<T>>> FromIterator<A> for SharedList<T> {
    fn from_iter<I: IntoIterator<Item = A>>(values: I) -> Self {
        SharedList(values.into_iter().map(Into::into).collect())
    }
}

impl<'a, T> IntoIterator for &'a SharedList<T> {
    type Item = &'a T;
    type IntoIter = ArcIter<'a, T>;

    fn into_iter(self) -> Self::IntoIter {
        self.iter()
    }
}

impl<T> Index<usize> for SharedList<T> {
    type Output = T;

    fn index(&self, at: usize) -> &T {
        &self.0[at]
    }
}

impl<T: Clone> IndexMut<usize> for SharedList<T> {
    fn index_mut(&mut self, at: usize) -> &mut T {
        Arc::make_mut(&mut self.0[at])
    }
}

/// Shared values by number.
#[derive(Debug, Clone, PartialEq)]
pub struct SharedMap<T>(BTreeMap<u32, Arc<T>>);

impl<T> Default for SharedMap<T> {
    fn default() -> Self {
        SharedMap(BTreeMap::new())
    }
}

impl<T> SharedMap<T> {
    pub fn values(&self) -> ArcValues<'_, T> {
        self.0.values().map(Arc::as_ref)
    }

    pub fn get(&self, key: &u32) -> Option<&T> {
        self.0.get(key).map(Arc::as_ref)
    }

    pub fn contains_key(&self, key: &u32) -> bool {
        self.0.contains_key(key)
    }

    pub fn len(&self) -> usize {
        self.0.len()
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(crate) fn clear(&mut self) {
        self.0.clear();
    }
}

impl<T: Clone> SharedMap<T> {
    pub(crate) fn get_mut(&mut self, key: &u32) -> Option<&mut T> {
        self.0.get_mut(key).map(Arc::make_mut)
    }

    pub(crate) fn get_or_insert_with(&mut self, key: u32, new: impl FnOnce() -> T) -> &mut T {
        Arc::make_mut(self.0.entry(key).or_insert_with(|| Arc::new(new())))
    }

    /// Copies every value that another map shares.
    pub(crate) fn values_mut(&mut self) -> impl Iterator<Item = &mut T> {
        self.0.values_mut().map(Arc::make_mut)
    }

    /// The values for which this is so, to be changed.
    pub(crate) fn values_mut_where(&mut self, is_meant: impl Fn(&T) -> bool) -> impl Iterator<Item = &mut T> {
        self.0.values_mut().filter(move |value| is_meant(value)).map(Arc::make_mut)
    }
}

impl<T> Index<&u32> for SharedMap<T> {
    type Output = T;

    fn index(&self, key: &u32) -> &T {
        &self.0[key]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn copy_shares_what_does_not_change() {
        let mut list: SharedList<String> = ["a", "b"].map(str::to_owned).into_iter().collect();
        let copy = list.clone();
        list[1].push('!');
        assert_eq!((copy[1].as_str(), list[1].as_str()), ("b", "b!"));
        assert!(Arc::ptr_eq(&list.0[0], &copy.0[0]) && !Arc::ptr_eq(&list.0[1], &copy.0[1]));
        list.iter_mut_where(|value| value == "b!").for_each(String::clear);
        assert!(Arc::ptr_eq(&list.0[0], &copy.0[0]), "what is not meant is not copied");
        let mut map = SharedMap::default();
        map.get_or_insert_with(7, || "c".to_owned());
        let copy = map.clone();
        assert!(Arc::ptr_eq(&map.0[&7], &copy.0[&7]));
        map.values_mut_where(|value| value == "c").for_each(|value| value.push('!'));
        assert_eq!((copy[&7].as_str(), map[&7].as_str()), ("c", "c!"));
    }
}
