#!/usr/bin/env python3
"""Checks that no file includes a standard header without using a name of it; of those headers that NAMES lists.

Prints each breach as file:line: what; exits 1 if there is one.
"""
import re
import sys

import check_stderr
import repository

MATH = (r"abs acosh? asinh? atan[2h]? beta cbrt ceil copysign cosh? erfc? exp2? expint expm1 fabs fdim floor fma fmax fmin fmod fpclassify frexp hypot ilogb "
        r"is(finite|inf|nan|normal|unordered|greater\w*|less\w*) ldexp lerp lgamma l?l?round l?l?rint log(10|1p|2|b)? modf nan nearbyint nextafter nexttoward pow "
        r"remainder remquo scalbl?n signbit sinh? sqrt tanh? tgamma trunc").split()
ALGORITHMS = (r"all_of any_of none_of for_each\w* find\w* adjacent_find count\w* mismatch equal search\w* copy\w* move\w* fill\w* transform generate\w* "
              r"remove\w* replace\w* swap\w* iter_swap reverse\w* rotate\w* shift_\w+ sample shuffle unique\w* \w*partition\w* \w*sort\w* nth_element "
              r"lower_bound upper_bound equal_range binary_search \w*merge includes set_\w+ \w*heap\w* max\w* min\w* clamp is_permutation "
              r"lexicographical_\w+ \w+_permutation contains starts_with ends_with fold_\w+").split()
# Header -> what any of its names looks like; where a name stands in another header too, it counts for both.
NAMES = {
    "algorithm": rf"std::(ranges::)?({'|'.join(ALGORITHMS)})\b",
    "array": r"std::(array|to_array|get|tuple_\w+)\b",
    "atomic": r"std::(atomic\w*|memory_order\w*)\b",
    "bitset": r"std::bitset\b",
    "charconv": r"std::(from_chars|to_chars|chars_format)\b",
    "chrono": r"\bchrono",
    "cmath": rf"\b({'|'.join(MATH)})[fl]?\(|\bstd::({'|'.join(MATH)})\b|\b(HUGE_VAL[FL]?|NAN|INFINITY|M_[A-Z0-9_]+|FP_[A-Z]+|(float|double)_t)\b",
    "condition_variable": r"std::(condition_variable\w*|cv_status|notify_all_at_thread_exit)\b",
    "cstdint": r"\b(u?int\w*_t|[A-Z]+\d*_(MAX|MIN|C))\b",
    "cstring": r"\b(mem(chr|cmp|cpy|move|set)|str(cat|chr|cmp|coll|cpy|cspn|dup|error|len|n\w+|pbrk|rchr|signal|spn|str|tok|xfrm))\w*\("
               r"|std::(mem|str)(chr|cmp|cpy|len|move|set)\b",
    "deque": r"std::deque\b",
    "filesystem": r"\bfilesystem\b",
    "fstream": r"std::\w*(fstream|filebuf)\b",
    "functional": r"std::(function|less|greater|less_equal|greater_equal|equal_to|not_equal_to|plus|minus|multiplies|divides|modulus|negate|logical_\w+|"
                  r"bit_(and|or|xor|not)|hash|c?ref|reference_wrapper|bind\w*|mem_fn|not_fn|invoke\w*|identity|placeholders|\w*searcher|bad_function_call|"
                  r"ranges::(less|greater|equal_to|not_equal_to|less_equal|greater_equal))\b",
    "future": r"std::(\w*future\w*|promise|async|packaged_task|launch)\b",
    "limits": r"std::(numeric_limits|float_\w+_style)\b",
    "list": r"std::list\b",
    "map": r"std::(multi)?map\b",
    "memory": r"std::(\w+_ptr|\w+_pointer_cast|get_deleter|make_(unique|shared)\w*|allocate_shared|enable_shared_from_this|addressof|\w*allocator\w*|"
              r"align|assume_aligned|\w*construct_at|destroy\w*|(ranges::)?uninitialized_\w+|default_delete|pointer_traits|to_address|owner_less)\b",
    "mutex": r"std::(\w*mutex|lock_guard|unique_lock|scoped_lock|once_flag|call_once|lock|try_lock|\w+_lock(_t)?|try_to_lock\w*)\b",
    "numbers": r"std::numbers\b",
    "numeric": r"std::(ranges::)?(accumulate|adjacent_difference|gcd|inner_product|iota|lcm|midpoint|partial_sum|reduce|transform_reduce|"
               r"(transform_)?(ex|in)clusive_scan)\b",
    "optional": r"std::(optional|nullopt\w*|make_optional|bad_optional_access)\b",
    "queue": r"std::(priority_)?queue\b",
    "random": r"std::(mt19937\w*|minstd_rand0?|ranlux\w+|knuth_b|random_device|\w+_distribution|\w+_engine|seed_seq|generate_canonical|"
              r"uniform_random_bit_generator)\b",
    "regex": r"std::\w*(regex|match)\w*\b",
    "set": r"std::(multi)?set\b",
    "shared_mutex": r"std::shared_(mutex|lock|timed_mutex)\b",
    "span": r"std::(span|as_bytes|as_writable_bytes|dynamic_extent)\b",
    "sstream": r"std::\w*(stringstream|stringbuf)\b",
    "stack": r"std::stack\b",
    "string": r"std::(\w*string|to_w?string|sto[a-z]+|getline|char_traits|string_literals|literals)\b",
    "string_view": r"string_view|\bliterals\b",
    "thread": r"std::(jthread|thread|this_thread)\b",
    "tuple": r"std::(tuple\w*|tie|get|make_tuple|forward_as_tuple|apply|ignore|make_from_tuple)\b",
    "type_traits": r"std::(result_of\w*|aligned_\w+|unwrap_\w+|reference_\w+|basic_common_reference|is_\w+|has_\w+|add_\w+|remove_\w+|"
                   r"make_(un)?signed\w*|enable_if\w*|conditional\w*|common_\w+|decay\w*|underlying_type\w*|invoke_result\w*|type_identity\w*|void_t|"
                   r"integral_constant|bool_constant|true_type|false_type|alignment_of\w*|rank\w*|extent\w*|conjunction\w*|disjunction\w*|negation\w*)\b",
    "unordered_map": r"std::unordered_(multi)?map\b",
    "unordered_set": r"std::unordered_(multi)?set\b",
    "utility": r"std::(move\w*|forward|swap|exchange|pair|make_pair|declval|in_place\w*|as_const|\w*(index|integer)_sequence\w*|cmp_\w+|in_range|"
               r"to_underlying|unreachable|piecewise_construct\w*|get|tuple_\w+|rel_ops)\b",
    "variant": r"std::(variant\w*|get|get_if|visit|holds_alternative|monostate|bad_variant_access|in_place_\w+)\b",
    "vector": r"std::vector\b",
}
NO_CODE = re.compile(check_stderr.NO_CODE, re.VERBOSE)
INCLUDE = re.compile(r"^ *# *include *<(\w+)>", re.MULTILINE)


def breaches(file, text):
    code = INCLUDE.sub("", NO_CODE.sub(" ", text))
    for match in INCLUDE.finditer(text):
        header = match.group(1)
        if header in NAMES and not re.search(NAMES[header], code):
            yield f"{file}:{text.count(chr(10), 0, match.start()) + 1}: <{header}> is included for nothing"


def main():
    found = []
    files = [p for p in repository.files() if p.suffix in {".h", ".cc", ".cu", ".cuh"}]
    for file in files:
        found += breaches(file, (repository.ROOT / file).read_text(encoding="utf-8"))
    print(*found, f"check_includes: {len(files)} files, {len(found)} breaches", sep="\n")
    return 1 if found or not files else 0


if __name__ == "__main__":
    sys.exit(main())
