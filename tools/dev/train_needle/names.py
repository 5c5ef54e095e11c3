"""Words that records are named by."""

ADJECTIVES = ("amber silver golden crimson violet azure scarlet ivory copper bronze emerald cobalt jade coral indigo maroon "
              "olive pearl ruby topaz silent gentle hidden frozen ancient hollow brave clever distant eager fierce humble "
              "lonely mighty noble patient quiet rapid rusty savage shiny simple solar stormy sunny swift tiny velvet wild "
              "wooden").split()
NOUNS = ("falcon river castle garden lantern mirror anchor badger beacon bridge canyon cedar comet compass cottage dolphin "
         "dragon eagle ember engine feather forest fountain glacier hammer harbor island jaguar kettle ladder lion lotus "
         "maple meadow mountain otter panther pebble phoenix planet rabbit raven rocket salmon shadow spider thunder tiger "
         "tower tunnel turtle valley violin walrus willow window wizard").split()
