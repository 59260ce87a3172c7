//! A compact map from subject to last sequence, for millions of subjects; `subject_sequences.py` is the same in Python.
//!
//! Records lie one behind the other in one vector: the sequence, the subject's length, the subject, and up to three
//! bytes that align the next one. A table has the place of each, and 32 bits of its hash, so that it grows without
//! reading the records. A record is never removed alone.

use hashbrown::HashTable;
use pyo3::prelude::*;
use pyo3::types::PyBytes;
use std::hash::{BuildHasher, RandomState};

const HEAD: usize = 12;
const ALIGNED: usize = 4;

/// A record's hash, and its place in units of `ALIGNED` bytes.
type Slot = (u32, u32);

/// Subject (bytes) to sequence (decimal text, below 2^64). About 30 bytes a subject more than the subject itself.
#[pyclass]
#[derive(Default)]
pub struct SubjectSequences {
    slots: HashTable<Slot>,
    records: Vec<u8>,
    hasher: RandomState,
}

#[pymethods]
impl SubjectSequences {
    #[new]
    fn new() -> Self {
        Self::default()
    }

    fn __len__(&self) -> usize {
        self.slots.len()
    }

    fn get<'py>(&self, py: Python<'py>, subject: &[u8]) -> Option<Bound<'py, PyBytes>> {
        self.find(self.hash(subject), subject).map(|at| text(py, self.sequence(at)))
    }

    fn set(&mut self, subject: &[u8], sequence: &[u8]) -> PyResult<()> {
        self.replace(subject, number_of(sequence)?);
        Ok(())
    }

    fn exchange<'py>(
        &mut self,
        py: Python<'py>,
        subject: &[u8],
        sequence: &[u8],
    ) -> PyResult<Option<Bound<'py, PyBytes>>> {
        Ok(self.replace(subject, number_of(sequence)?).map(|last| text(py, last)))
    }

    fn subject_of<'py>(&self, py: Python<'py>, sequence: &[u8]) -> Option<Bound<'py, PyBytes>> {
        let wanted = number_of(sequence).ok()?;
        let slot = self.slots.iter().find(|slot| self.sequence(place(slot)) == wanted)?;
        Some(PyBytes::new(py, self.subject(place(slot))))
    }

    fn forget_below(&mut self, sequence: u64) {
        let before = std::mem::take(self);
        for slot in &before.slots {
            let at = place(slot);
            if before.sequence(at) >= sequence {
                self.replace(before.subject(at), before.sequence(at));
            }
        }
    }

    fn clear(&mut self) {
        *self = Self::default();
    }

    fn items<'py>(&self, py: Python<'py>) -> Vec<(Bound<'py, PyBytes>, Bound<'py, PyBytes>)> {
        let item = |slot| {
            let at = place(slot);
            (PyBytes::new(py, self.subject(at)), text(py, self.sequence(at)))
        };
        self.slots.iter().map(item).collect()
    }
}

impl SubjectSequences {
    /// Store a subject's sequence; the one that it replaces.
    pub fn replace(&mut self, subject: &[u8], sequence: u64) -> Option<u64> {
        let hash = self.hash(subject);
        if let Some(at) = self.find(hash, subject) {
            let last = self.sequence(at);
            self.records[at..at + 8].copy_from_slice(&sequence.to_ne_bytes());
            return Some(last);
        }
        let at = self.records.len();
        self.records.extend_from_slice(&sequence.to_ne_bytes());
        self.records.extend_from_slice(&(subject.len() as u32).to_ne_bytes());
        self.records.extend_from_slice(subject);
        self.records.resize(self.records.len().next_multiple_of(ALIGNED), 0);
        let place = u32::try_from(at / ALIGNED).expect("less than 16 GiB of subjects");
        self.slots.insert_unique(wide(hash), (hash, place), |slot| wide(slot.0));
        None
    }

    fn hash(&self, subject: &[u8]) -> u32 {
        self.hasher.hash_one(subject) as u32
    }

    fn find(&self, hash: u32, subject: &[u8]) -> Option<usize> {
        let same = |slot: &Slot| slot.0 == hash && self.subject(place(slot)) == subject;
        self.slots.find(wide(hash), same).map(place)
    }

    fn sequence(&self, at: usize) -> u64 {
        u64::from_ne_bytes(self.records[at..at + 8].try_into().expect("eight bytes"))
    }

    fn subject(&self, at: usize) -> &[u8] {
        let length = u32::from_ne_bytes(self.records[at + 8..at + HEAD].try_into().expect("four bytes"));
        &self.records[at + HEAD..at + HEAD + length as usize]
    }
}

fn place(slot: &Slot) -> usize {
    slot.1 as usize * ALIGNED
}

/// The table takes a place from the low bits of a hash, and what it compares first from the high ones.
fn wide(hash: u32) -> u64 {
    u64::from(hash) << 32 | u64::from(hash)
}

fn text(py: Python<'_>, sequence: u64) -> Bound<'_, PyBytes> {
    PyBytes::new(py, sequence.to_string().as_bytes())
}

fn number_of(text: &[u8]) -> PyResult<u64> {
    Ok(std::str::from_utf8(text)?.parse()?)
}
